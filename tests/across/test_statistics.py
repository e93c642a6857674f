"""Statistics and statements of the comparison across the papers, compared with SciPy and with flipped data."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from stored import row_of

from fedrepro.across import page, protocol, statistics, tables, twins
from fedrepro.reporting import checks

METIS = protocol.METIS


def table(scores: dict[str, list[float]], dataset: str = "Cora", sent: float = 1.0) -> pd.DataFrame:
    """Return scored rows on METIS parts of a graph, one a seed."""
    column = protocol.Column(dataset, METIS)
    shared = {"column": column.label, **column._asdict(), "spread": 1.0}
    rows = []
    for i, (name, values) in enumerate(scores.items()):
        for seed, value in enumerate(values):
            entries = {"row": name, "seed": seed, "bytes": sent * (i + 1), "key": f"{name}{seed}{dataset}"}
            rows.append(shared | entries | dict.fromkeys(("accuracy", "F1", "worst", "validation"), value))
    return pd.DataFrame(rows, columns=list(tables.MAIN_COLUMNS))


SCORES = {
    "Local": [70.0, 71.0, 69.0, 72.0, 70.5],
    "FedAvg": [75.0, 76.5, 74.0, 77.0, 75.0],
    "FedGAT": [80.0, 81.0, 79.5, 82.0, 80.0],
}


def test_differences_are_paired_with_the_interval_of_student() -> None:
    """SciPy's interval of the paired differences, and verdicts that follow its sides."""
    gaps = statistics.differences(table(SCORES)).set_index(["row", "base"])
    for name, base in (("FedAvg", "Local"), ("FedGAT", "Local"), ("Local", "FedAvg"), ("FedGAT", "FedAvg")):
        leads = np.subtract(SCORES[name], SCORES[base])
        low, high = stats.t.interval(0.95, 4, leads.mean(), stats.sem(leads))
        row = gaps.loc[(name, base)]
        assert row["difference"] == pytest.approx(leads.mean()) and row["pairs"] == 5
        assert (row["low"], row["high"]) == (pytest.approx(low), pytest.approx(high))
        assert row["verdict"] == ("above" if low > 0 else "below")


def test_a_view_of_a_method_is_not_compared_with_it() -> None:
    """Fine-tuned FedAvg is a view of FedAvg's runs: it is compared only with Local."""
    gaps = statistics.differences(table({**SCORES, protocol.FINE_TUNED: SCORES["FedGAT"]}))
    assert gaps.loc[gaps["row"].eq(protocol.FINE_TUNED), "base"].tolist() == ["Local"]
    assert not gaps["row"].eq(gaps["base"]).any()


def test_noise_alone_is_seldom_shown() -> None:
    """Methods of equal mean: at most one in twenty columns shows any, by Benjamini and Hochberg."""
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(60):
        scores = {name: list(70 + rng.normal(size=5)) for name in ("Local", "FedAvg", "FedGAT", "FedProx")}
        shown += bool((statistics.differences(table(scores))["verdict"] != statistics.NOT_SHOWN).any())
    assert shown <= 9  # two bases share their noise, so tests of a column are no independent ones


def test_ranks_and_critical_difference_are_those_of_the_books() -> None:
    """Friedman's test from SciPy, Nemenyi's difference for 5 methods and 30 graphs from Demsar's table (2.728)."""
    graphs = [graph for graph in protocol.SEEDS if graph != "subCora"][:4]
    rng = np.random.default_rng(1)
    parts, means = [], []
    for graph in graphs:
        scores = {name: list(rng.normal(70, 3, size=2)) for name in ("Local", "FedAvg", "FedGAT", "FedProx")}
        parts.append(table(scores, graph))
        means.append([np.mean(values) for values in scores.values()])
    mean_ranks = statistics.ranks(pd.concat(parts))
    assert mean_ranks is not None and mean_ranks.graphs == 4
    assert mean_ranks.p == pytest.approx(stats.friedmanchisquare(*np.transpose(means)).pvalue)
    expected = pd.Series((5 - stats.rankdata(means, axis=1)).mean(0), ["Local", "FedAvg", "FedGAT", "FedProx"])
    assert mean_ranks.mean.to_dict() == pytest.approx(expected.to_dict())
    assert statistics.critical_difference(5, 30) == pytest.approx(2.728 * math.sqrt(5 * 6 / (6 * 30)), rel=1e-3)
    assert statistics.ranks(parts[0]) is None, "one graph ranks nothing"


def test_power_grows_with_graphs_and_with_the_advantage_and_is_small_for_few_graphs() -> None:
    """Seven graphs tell an advantage of one standard deviation from fifteen methods less than half of the time."""
    assert statistics.power(15, 7, 1.0) < 0.5
    assert statistics.power(15, 7, 0.0) < 0.05
    assert statistics.power(15, 40, 2.0) > statistics.power(15, 7, 2.0) > statistics.power(15, 7, 1.0)


def test_what_a_lead_depends_on_is_welchs_interval() -> None:
    """The lead on a homophilic graph minus that on another one, and METIS minus random."""
    rng = np.random.default_rng(2)
    parts = []
    for graph, lead in (("Cora", 8.0), ("Chameleon", 1.0)):
        local = rng.normal(60, 1, 5)
        parts.append(table({"Local": list(local), "FedAvg": list(local + lead + rng.normal(0, 0.5, 5))}, graph))
    # Runs on another split, or with more clients, are no further runs of a column.
    others = [parts[0].assign(column=name, accuracy=0.0, **more) for name, more in OTHER_COLUMNS.items()]
    effects = statistics.dependence(pd.concat([*parts, *others]), {"Cora": statistics.HOMOPHILY, "Chameleon": 0.2})
    row = effects[(effects["row"] == "FedAvg") & (effects["effect"] == "Cora minus Chameleon")].iloc[0]
    ends = stats.ttest_ind(*map(leads_of, parts), equal_var=False).confidence_interval(0.95)
    assert (row["low"], row["high"]) == (pytest.approx(ends.low), pytest.approx(ends.high))
    assert row["verdict"] == statistics.SHOWN


OTHER_COLUMNS: dict[str, dict[str, object]] = {"split": {"split": protocol.SECOND}, "clients": {"clients": 20}}


def leads_of(rows: pd.DataFrame) -> np.ndarray:
    """Return FedAvg's accuracies less those of Local."""
    by = rows.groupby("row")["accuracy"]
    return np.subtract(*(by.get_group(name).to_numpy() for name in ("FedAvg", "Local")))


def test_seeds_of_two_graphs_are_no_runs_of_one() -> None:
    """Graphs of a side with different leads: the interval is that of a mean of graph means, as simulation gives it."""
    graphs = {"Cora": (8.0, 0.5, 5), "CiteSeer": (0.0, 1.0, 3), "Chameleon": (1.0, 0.3, 5), "Squirrel": (-9.0, 0.8, 4)}
    homophily = {"Cora": 0.8, "CiteSeer": 0.7, "Chameleon": 0.2, "Squirrel": 0.2}
    rng, covered = np.random.default_rng(3), 0
    for _ in range(60):
        parts = [
            table({"Local": [60.0] * n, "FedAvg": list(60 + lead + rng.normal(0, sd, n))}, graph)
            for graph, (lead, sd, n) in graphs.items()
        ]
        effects = statistics.dependence(pd.concat(parts), homophily)
        row = effects[effects["effect"] == "Cora, CiteSeer minus Chameleon, Squirrel"].iloc[0]
        means = [leads_of(part).mean() for part in parts]
        assert row["difference"] == pytest.approx(sum(means[:2]) / 2 - sum(means[2:]) / 2)
        assert row["high"] - row["low"] < 8, "the spread between graphs of a side is no error"
        part = np.array([leads_of(one).var(ddof=1) / (len(leads_of(one)) * 2**2) for one in parts])
        freedom = part.sum() ** 2 / sum(part**2 / [len(leads_of(one)) - 1 for one in parts])  # Satterthwaite's
        half = stats.t.ppf(0.975, freedom) * math.sqrt(part.sum())
        assert (row["high"] - row["low"]) / 2 == pytest.approx(half)
        covered += row["low"] <= 8 <= row["high"]
    assert covered >= 52  # 57 are expected


def test_the_pareto_front_holds_what_no_other_beats() -> None:
    """Equal points stay, and one that costs more for an equal gain goes."""
    points = pd.DataFrame({"bytes": [0.0, 1.0, 1.0, 2.0, 3.0], "accuracy": [50.0, 60.0, 60.0, 60.0, 70.0]})
    assert tables.front(points).tolist() == [True, True, True, False, True]


def test_statements_follow_from_the_data_and_flip_with_it() -> None:
    """Two rows that change their scores change places in every statement about them."""
    leaks = pd.DataFrame(
        {"row": ["FedAvg", "FedGAT"], "features": [0.1, 0.9], "edges": [0.0, 1.0], "labels": [0.2, 0.3]}
    )
    before = page.sentences(table(SCORES), leaks)
    exchanged = {**SCORES, "FedAvg": SCORES["FedGAT"], "FedGAT": SCORES["FedAvg"]}
    flipped = page.sentences(table(exchanged), leaks.assign(row=["FedGAT", "FedAvg"]))
    told = next(one for one in before if one.startswith("**Accuracy"))
    assert "FedGAT has the highest mean, 80.5%; all others are shown to be worse" in told
    assert "FedAvg has the highest mean, 80.5%" in next(one for one in flipped if one.startswith("**Accuracy"))
    assert any("features.** FedGAT reveals most to this attacker: 90%" in one for one in before)
    assert any("features.** FedAvg reveals most to this attacker: 90%" in one for one in flipped)
    central = pd.DataFrame({"row": ["Central"], "features": [0.0], "edges": [0.0], "labels": [0.0]})
    beside = page.sentences(table({**SCORES, "Central": [80.5] * 5}), pd.concat([leaks, central]))
    assert not any(one.startswith("**Leaks") and "Central" in one for one in beside)
    below = page.sentences(table({**SCORES, "Local": [90.0, 91.0, 89.0, 92.0, 90.5]}))
    shown = "Shown above Local, in so many of its columns:"
    assert any(f"{shown} no method" in one for one in below)
    assert any(f"{shown} FedAvg (1 of 1), FedGAT (1 of 1)" in one for one in before)


def test_a_method_is_counted_in_its_own_columns() -> None:
    """A method with runs in one of two columns is said to be above in one of one."""
    other = table({name: SCORES[name] for name in ("Local", "FedAvg")}, "CiteSeer")
    told = page.sentences(pd.concat([table(SCORES), other]))
    assert any("of its columns: FedAvg (2 of 2), FedGAT (1 of 1)." in one for one in told)


def test_ranks_that_can_show_nothing_say_so() -> None:
    """With many methods on two graphs the first of all is within the critical difference, and no chance is told."""
    names = list(protocol.METHODS)[1:10]
    rng = np.random.default_rng(4)
    few, many = (
        pd.concat([table({name: list(70 + rng.normal(size=2)) for name in names[:k]}, graph) for graph in graphs])
        for k, graphs in ((9, ("Cora", "CiteSeer")), (3, ("Cora", "CiteSeer", "Chameleon", "Squirrel", "PubMed")))
    )
    assert statistics.ranks(few).critical > statistics.ranks(few).reach == 4.5
    assert statistics.power(9, 2, 50.0) == 0.0
    (told,) = (one for one in page.sentences(few) if one.startswith("Ranks"))
    assert "no method can be told from the middle of the others" in told and "%" not in told
    lacking = many[many["row"].ne(names[2]) | many["dataset"].ne("Cora")]
    assert not any("Left out" in one for one in page.sentences(many))
    wide = pd.concat([lacking, table({"Feras": [1.0, 2.0]}), many[many["row"] == names[2]].assign(row=names[3])])
    told = page.sentences(wide)
    assert any(
        one == f"Left out of the ranks, since they have no runs on some graph: {names[2]}, Feras." for one in told
    )
    assert any("with a chance of" in one for one in page.sentences(many))


def test_to_be_shown_worse_counts_how_many_rows_are_compared() -> None:
    """A row at p = 0.04 is shown to be worse among two rows, and not among six, of which four hardly differ."""
    noise = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    gap = stats.t.isf(0.02, 4) * noise.std(ddof=1) / np.sqrt(5)
    first, second = 80.0 + noise, np.full(5, 80.0 - gap)
    two = table({"FedAvg": first, "Local": second})
    assert page.best(two, two["column"].iloc[0]) == ("FedAvg", pytest.approx(80.0), [])
    near = dict.fromkeys(["FedGAT", "FedProx", "FedSGD", "FedPer"], first - 1e-3 - 0.1 * noise[::-1])
    many = table({"FedAvg": first, "Local": second, **near})
    assert page.best(many, many["column"].iloc[0])[2].count("Local") == 1


def test_shares_below_chance_are_cut_after_the_mean() -> None:
    """Attacks that scatter around chance reveal nothing; what lies above it counts as it is."""
    goals = ("features", "edges", "labels")
    runs = [
        {"dataset": "Cora", "of": of, "used": "", "unused": ""}
        | {f"chance.{goal}": 0.5 for goal in goals}
        | {f"sent.{goal}": 0.5 + off for goal in goals}
        for of, offs in {"FedAvg": (-0.1, 0.05, 0.02), "FedGCN": (-0.1, 0.2, 0.2)}.items()
        for off in offs
    ]
    leaks = tables.leaks(pd.DataFrame(runs)).set_index("row")
    assert leaks.loc["FedAvg", list(goals)].tolist() == [0.0] * 3
    assert leaks.loc["FedGCN", "edges"] == pytest.approx(0.2)


def test_shares_need_a_guess_below_the_whole() -> None:
    """A goal that could not be measured has no share, nor has one whose guess may be all there is."""
    run: dict[str, object] = {"dataset": "mine", "of": "FedAvg", "used": "", "unused": ""}
    run |= {"sent.features": 0.8, "chance.features": 1.3, "sent.edges": None, "chance.edges": 0.5}
    run |= {"sent.labels": 0.6, "chance.labels": 0.2, "prior.labels": None}
    row = tables.leaks(pd.DataFrame([run])).iloc[0]
    assert np.isnan(row["features"]) and row["features guessed"] == 1
    assert np.isnan(row["edges"]) and row["labels"] == pytest.approx(0.5)


def test_the_short_answer_counts_columns_and_flips_with_the_data(tmp_path: Path) -> None:
    """The best method of each kind of columns is named, with its count; the rest of the page is folded."""
    other = {**SCORES, "Local": SCORES["FedGAT"], "FedGAT": SCORES["Local"]}
    short = page.shortlist(pd.concat([table(SCORES), table(SCORES, "CiteSeer"), table(other, "Squirrel")]))
    near, far = "parts of neighbours (METIS) (of 2)", "parts of neighbours (METIS), heterophilic graphs (of 1)"
    counts = short.set_index("method")
    assert counts.loc["FedGAT", [near, far]].tolist() == [2, 0] and counts.loc["Local", [near, far]].tolist() == [0, 1]
    assert "FedAvg" not in counts.index and counts[f"{page.CHEAP} (of 3)"].to_dict() == {"FedGAT": 2, "Local": 1}
    told = list(page.answers(short))
    assert told[0] == "**Parts of neighbours (METIS)**: FedGAT in 2 of 2 columns."
    assert told[1] == "**Parts of neighbours (METIS), heterophilic graphs**: Local in 1 of 1 columns."
    leaks = pd.DataFrame({"row": ["FedGAT"], "features": [0.9], "edges": [0.0], "labels": [0.2]})
    held = page.shortlist(table(SCORES), leaks).set_index("method")
    assert held.loc["FedGAT", "this attacker rebuilds on Cora"] == "90%"
    none = leaks.assign(features=0.0, labels=0.0)
    for messages, said in (
        ({"used": "W1", "unused": "generated weights"}, "nothing (no use made of generated weights)"),
        ({"used": "W1", "unused": float("nan")}, "nothing"),
        ({"used": "", "unused": ""}, "nothing is sent"),
    ):
        held = page.shortlist(table(SCORES), none.assign(**messages)).set_index("method")
        assert held.loc["FedGAT", "this attacker rebuilds on Cora"] == said
    (tmp_path / "across").mkdir()
    text = page.write(tmp_path, ["a statement"], short)
    assert text.index("FedGAT in 2 of 2") < text.index("<details>") < text.index("- a statement")
    assert "Tables write `Cora metis 10` for Cora, METIS, 10 clients." in text
    assert "Among methods that send equally many bytes, the one of highest mean accuracy is said to send least." in text


def test_of_equal_bytes_the_better_method_sends_least() -> None:
    """A method is not named for its bytes if another one sends as much and is better."""
    close = {"FedAvg": [80.0, 80.5], "FedSGD": [81.0, 81.5]}
    told = page.sentences(table(close).assign(bytes=70.4))
    assert any("FedSGD sends least, 70.4 MiB per client; on the Pareto front" in one for one in told)
    assert not any("FedAvg sends least" in one for one in told)


def test_a_column_that_lacks_runs_says_so() -> None:
    """A statement on a column whose methods have not all runs of the protocol has the numbers of runs."""
    column = protocol.Column("Cora", METIS)
    methods = [name for name in protocol.METHODS if not protocol.why_not(name, column)]
    whole = table(dict.fromkeys([*methods, protocol.FINE_TUNED], SCORES["Local"]))
    lacking = whole[whole["row"].ne("FedAvg") | whole["seed"].lt(2)]
    name = "Cora, METIS, 10 clients"
    for rows, heading in ((whole, f"{name}.**"), (lacking, f"{name} (2-5 of 5 runs a method).**")):
        told = page.sentences(rows)
        assert all(any(one.startswith(f"**{what}, {heading}") for one in told) for what in ("Accuracy", "Bytes"))


def test_readings_of_fedavg_are_told_by_their_distance_to_fedsgd() -> None:
    """The options of a run name its reading, and the page has the paired differences, which flip with the data."""
    values = dict(zip(protocol.FEDAVG_READINGS, (70.0, 80.0, 75.0, 81.0)))
    values["FedSGD"], rows = 82.0, []
    for name, value in values.items():
        options = protocol.FEDAVG_READINGS.get(name, {})
        column = protocol.Column("Cora", METIS)
        for run in protocol.cell("FedAvg" if name in protocol.FEDAVG_READINGS else name, column, **options):
            rows.append(row_of(run, {"before.best.test": value / 100 + 0.001 * run.seed, "before.best.val": 0.5}))
    read = tables.readings(pd.DataFrame(rows))
    assert read.groupby("row")["accuracy"].mean().round(6).to_dict() == {
        name: value + 0.2 for name, value in values.items()
    }
    (told,) = (one for one in page.sentences(table(SCORES), read=read) if one.startswith("**FedAvg minus FedSGD"))
    assert "as in AX-1 -12.0 [-12.0, -12.0]; moments start anew in each round -2.0" in told
    swapped = read.assign(row=read["row"].replace({"as in AX-1": "FedSGD", "FedSGD": "as in AX-1"}))
    assert any("as in AX-1 +12.0" in one for one in page.sentences(table(SCORES), read=swapped))


def test_controls_stand_with_the_leaks_whether_they_hold_or_fail() -> None:
    """The one that fails says what it takes from the leaks, and the one that holds says that it does."""
    rows = [checks.row("AX-K1", "noise gives chance", 0.2, 0.1), checks.row("AX-K2", "plain data give 1", 0.0, 1e-6)]
    fails, holds = (one for one in page.sentences(table(SCORES), None, rows) if "control" in one)
    assert "a control fails.** AX-K1" in fails and "0.1" in fails and fails.endswith("not told from chance.")
    assert "a control holds.** AX-K2" in holds and "chance" not in holds


def test_the_control_of_noise_says_how_often_it_was_drawn() -> None:
    """The draws are those of the stored runs; runs that do not say theirs are told without."""
    run = {f"{kind}.{goal}": 1.0 for kind in ("noise", "chance", "plain") for goal in tables.GOALS}
    new, old = (tables.controls(pd.DataFrame([run | more]))[0] for more in ({"draws": 400}, {}))
    assert "400 draws for labels without rows" in new["statement"] and "draws" not in old["statement"]


@pytest.mark.parametrize(("kind", "id_"), [("noise", "AX-K1"), ("plain", "AX-K2")])
def test_an_attack_whose_control_is_nan_fails_it(kind: str, id_: str) -> None:
    """One goal of one run is enough."""
    run = {f"{name}.{goal}": 1.0 for name in ("noise", "chance", "plain") for goal in tables.GOALS}
    for rows in itertools.permutations([run, run | {f"{kind}.{tables.GOALS[1]}": math.nan}]):
        verdicts = {row["id"]: row["verdict"] for row in tables.controls(pd.DataFrame(list(rows)))}
        assert verdicts == {"AX-K1": "holds", "AX-K2": "holds"} | {id_: "fails"}


@pytest.mark.parametrize(("goal", "away", "verdict"), [("edges", -0.3, "fails"), ("features", -0.3, "holds")])
def test_noise_below_chance_is_off_where_chance_is_no_bound(goal: str, away: float, verdict: str) -> None:
    """Noise that orders edges backwards is no chance; the chance of a cosine is an upper bound."""
    run = {f"{kind}.{name}": 1.0 for kind in ("noise", "chance", "plain") for name in tables.GOALS}
    run[f"noise.{goal}"] += away
    assert tables.controls(pd.DataFrame([run]))[0]["verdict"] == verdict


def test_a_summary_has_half_of_students_interval() -> None:
    """Behind a mean over five runs stands half of its 95% interval."""
    row = tables.summary(table(SCORES)).query("row == 'FedGAT' and runs == 5").iloc[0]
    half = stats.t.ppf(0.975, 4) * stats.sem(SCORES["FedGAT"])
    assert (row["mean"], row["half95"]) == pytest.approx((np.mean(SCORES["FedGAT"]), half))


@pytest.mark.parametrize(("val", "test"), [((0.6, 0.7), 50.0), ((0.8, 0.7), 90.0), ((math.nan, 0.7), 50.0)])
def test_a_users_method_is_scored_in_its_better_view(val: tuple[float, float], test: float) -> None:
    """It is the view of higher validation accuracy, before or after local training, whatever the test scores are."""
    (run,) = protocol.cell("FedAvg", protocol.Column("Cora", METIS), [0])
    scores = {"before.best.val": val[0], "after.best.val": val[1], "before.best.test": 0.9, "after.best.test": 0.5}
    assert tables.scored(pd.DataFrame([row_of(run, scores) | {"method": "Mine"}]))["accuracy"].tolist() == [test]


def test_a_cell_without_all_its_seeds_is_open() -> None:
    """Two of five seeds are not a finished cell."""
    whole, part = (tables.missing(tables.summary(table({k: v[:n] for k, v in SCORES.items()}))) for n in (5, 2))
    label = protocol.Column("Cora", METIS).label
    assert whole.set_index("column").loc[label, "with runs"] == 3
    assert part.set_index("column").loc[label, "with runs"] == 0


def test_a_single_run_makes_no_statement_about_accuracy() -> None:
    """There is no best row, and no difference is shown."""
    one = table({name: values[:1] for name, values in SCORES.items()})
    assert not any(text.startswith("**Accuracy") for text in page.sentences(one))
    assert set(statistics.differences(one)["verdict"]) <= {statistics.NOT_SHOWN}


def test_a_title_says_a_columns_name_in_words() -> None:
    """METIS is written as its authors do, another split stays named, and what is no column is left as it is."""
    second = protocol.Column("Cora", protocol.RANDOM, 20, protocol.SECOND)
    told = [tables.spoken(label) for label in (protocol.Column("my graph", METIS).label, second.label, "by hand")]
    assert told == ["my graph, METIS, 10 clients", f"Cora, random, 20 clients, {protocol.SECOND}", "by hand"]
    assert tables.spoken("Cora dirichlet 20") == "Cora, Dirichlet, 20 clients"


def test_the_page_names_every_column_in_words() -> None:
    """No statement has the label of a table, whatever it tells; a list of columns is split by semicolons."""
    rows = pd.concat([table(SCORES).assign(column=column.label, **column._asdict()) for column in protocol.columns()])
    held = pd.DataFrame({"row": ["FedAvg"], "features": [0.1], "edges": [0.0], "labels": [0.2]})
    read = pd.concat([table(SCORES), table({"FedSGD": SCORES["Local"], "as in AX-1": SCORES["FedAvg"]})])
    scored = table(SCORES).assign(nodes=twins.WITH)
    leads = twins.leads(pd.concat([scored, scored.assign(nodes=twins.WITHOUT)]))
    told = page.sentences(rows, held, read=read, leads=leads)
    assert not [one for one in told for column in protocol.columns() if column.label in one]
    name = "Cora, METIS, 10 clients"
    heads = ("Accuracy, {}", "FedAvg minus FedSGD in points, {}", "Duplicated pages, {}", "Bytes, {}", "Leaks on {}")
    assert all(any(one.startswith(f"**{head.format(name)}") for one in told) for head in heads)
    assert any(f"not complete: {name}; Cora, random, 10 clients; " in one for one in told)
