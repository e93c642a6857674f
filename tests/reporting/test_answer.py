"""A paper's numbers are summed up by counts, by what a perfect copy gets, by sentences and by leads."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedrepro import paths
from fedrepro.reporting import answer, compare, effects, exhibits, files, notebook, outcome, readings, rule
from fedrepro.reporting.exhibits import MainTable


def runs_of(means: dict[str, float], seeds: int = 6, spread: float = 0.004) -> pd.DataFrame:
    """Return runs of FG-T1's methods on Cora with ten non-iid clients; a seed's error is common to all methods."""
    rng = np.random.default_rng(0)
    common = rng.normal(0, spread, seeds)
    return pd.DataFrame(
        [
            {
                "dataset": "Cora", "method": method, "clients": 10, "partition": "dirichlet(beta=1)", "seed": seed,
                "status": "ok", "test": mean + common[seed] + rng.normal(0, spread / 4),
            }
            for method, mean in means.items()
            for seed in range(seeds)
        ]
    )  # fmt: skip


def printed() -> pd.DataFrame:
    table = exhibits.published("fedgat")
    return table[table["exhibit"].eq("FG-T1")]


LIKE_PRINT = {"FedGAT": 0.800, "DistGAT": 0.684, "FedGCN": 0.797}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with FG-T1 drawn from runs like the printed ones, and the leads of FedGAT."""
    return draw(tmp_path, LIKE_PRINT)


def draw(folder: Path, means: dict[str, float]) -> Path:
    frame = runs_of(means)
    files.save("fedgat", "FG-T1", compare.judge_table(frame, printed()), folder=folder)
    leads = effects.effects(frame, printed(), MainTable({"method": "FedGAT"}, value="test"))
    files.save("fedgat", "FG-T1-effects", leads, folder=folder)
    return folder


def test_the_sentences_follow_the_numbers(folder: Path, tmp_path: Path) -> None:
    """A changed record changes the text."""
    before = outcome.of_tables(answer.numbers(folder, "fedgat"), "FG-T1")
    assert any("3 could be tested" in one for one in before)
    moved = draw(tmp_path / "other", LIKE_PRINT | {"FedGAT": 0.7})
    after = outcome.of_tables(answer.numbers(moved, "fedgat"), "FG-T1")
    assert before != after


def test_words_are_counted_under_any_margin(folder: Path) -> None:
    """The counts under the suite's margin are those of the file; a wider margin agrees at least as often."""
    table = answer.cells(folder, "fedgat")
    words = answer.counted(table)
    tested = table[table["verdict"].ne(rule.NOT_TESTED)]
    assert words == {word: int(tested["verdict"].eq(word).sum()) for word in answer.TESTED}
    assert answer.counted(table, 3.0)[rule.AGREES] >= words[rule.AGREES] >= answer.counted(table, 1.0)[rule.AGREES]


def test_the_picture_of_several_papers_has_a_panel_each(folder: Path) -> None:
    """A panel has a paper's name, numbers that agree are drawn last, and the legend counts those of all."""
    table = answer.cells(folder, "fedgat")
    one = answer.picture(table, "FedGAT")
    two = answer.picture(pd.concat([table, table.assign(paper="gfl")]), "All papers")
    assert [axes.get_title() for axes in one.axes] == ["FedGAT"]
    assert [axes.get_title() for axes in two.axes] == ["FedGAT", "GFL-APPNP"]
    words = answer.counted(table)
    for figure, times in ((one, 1), (two, 2)):
        (legend,) = (axes.get_legend() for axes in figure.axes if axes.get_legend())
        told = [text.get_text() for text in legend.get_texts()]
        assert told == [f"{word} ({times * words[word]})" for word in answer.TESTED]
        last = figure.axes[0].collections[-1]
        assert len(last.get_offsets()) == words[rule.AGREES] > 0


@pytest.mark.parametrize(
    ("runs", "redrawn", "peak"), [(3, True, False), (10, True, False), (5, False, False), (10, False, True)]
)
def test_the_perfect_copy_is_what_simulation_gives(runs: int, redrawn: bool, peak: bool) -> None:
    """The expected words of cells are those that copies get, over many draws from the prior."""
    rng = np.random.default_rng(1)
    draws, prior = 8000, rule.Prior(1.4, 6.0)
    sd = np.sqrt(prior.variance * prior.freedom / rng.chisquare(prior.freedom, draws))
    ours = rng.normal(size=(draws, runs)) * sd[:, None]
    drawn = rng.normal(size=(10, draws)).max(axis=0) if peak else rng.normal(size=draws)
    theirs = drawn * sd / (math.sqrt(10) if redrawn else 1)
    own = rule.moderated(ours.std(axis=1, ddof=1), runs, prior)
    intervals = rule.intervals(ours.mean(axis=1), *own, runs, theirs, math.nan, 10, redrawn=redrawn, peak=peak)
    table = pd.DataFrame({"difference": intervals.difference, "half90": intervals.half90, "half95": intervals.half95})
    table["why"] = compare.PEAK if peak else ""
    table["verdict"] = rule.words(intervals.difference, intervals.half90, intervals.half95)
    wanted, said = answer.expected(table), answer.counted(table)
    assert sum(wanted.values()) == pytest.approx(draws)
    for word in answer.TESTED:
        assert wanted[word] / draws == pytest.approx(said[word] / draws, abs=0.02)


def test_leads_are_paired_over_seeds() -> None:
    """A lead has the interval of the paired differences, which is narrower than the scores would allow."""
    leads = effects.effects(runs_of(LIKE_PRINT), printed(), MainTable({"method": "FedGAT"}, value="test")).set_index(
        "over"
    )
    row = leads[leads["pairs"].gt(0)].loc["DistGAT"]
    assert row["printed_lead"] == pytest.approx(11.6) and row["our_lead"] == pytest.approx(11.6, abs=0.3)
    assert row["pairs"] == 6 and row["ratio_low"] < row["ratio"] < row["ratio_high"]
    assert row["ratio"] == pytest.approx(1.0, abs=0.05)
    assert effects.summary(leads.reset_index())["leads"] == 2


def test_one_kept_graph_widens_a_lead() -> None:
    """Graphs drawn anew widen a lead's interval: little if both rows share them, and more than twofold if not."""
    runs, told = runs_of(LIKE_PRINT), MainTable({"method": "FedGAT"}, value="test")
    rng, cells = np.random.default_rng(0), printed()
    shared = 0.03 * rng.standard_normal(10)
    scores = [pd.Series(shared + 0.002 * rng.standard_normal(10)) for _ in cells.index]
    alone = [pd.Series(0.03 * rng.standard_normal(10)) for _ in cells.index]
    anew = [pd.Series(some, cells.index, dtype=object) for some in (scores, alone)]
    kept = [cells.assign(anew=some) for some in anew] + [cells.assign(anew=anew[0], anew_own=False)]
    leads = [effects.effects(runs, table, told) for table in (cells, *kept)]
    halves = [one[one["over"].eq("DistGAT") & one["pairs"].gt(0)]["half95"].item() for one in leads]
    narrow, paired, apart, borrowed = halves
    # What both rows share of a graph is in no lead. Scores of another row cannot be paired.
    assert narrow <= paired < 1.5 * narrow and min(apart, borrowed) > 2 * narrow


def test_shuffled_records_flip_the_leads() -> None:
    """Negative control: with the methods' names exchanged the lead has the wrong sign and differs."""
    swapped = runs_of({"FedGAT": 0.684, "DistGAT": 0.800})
    leads = effects.effects(swapped, printed(), MainTable({"method": "FedGAT"}, value="test"))
    row = leads[leads["pairs"].gt(0)].iloc[0]
    assert row["our_lead"] < 0 < row["printed_lead"] and row["verdict"] == rule.DIFFERS


def test_only_tested_leads_are_summed_up() -> None:
    """A lead over a printed peak, which is no mean, is in no median and has no sign; a tie has no sign, either."""
    central = [run | {"method": "GAT", "partition": "single", "clients": 1, "test": 0.2 + run["test"]} for run in (
        runs_of({"GAT": 0.781}).to_dict("records")
    )]  # fmt: skip
    frame = pd.concat([runs_of(LIKE_PRINT), pd.DataFrame(central)])
    leads = effects.effects(frame, printed(), MainTable({"method": "FedGAT"}, value="test"))
    peak = leads[leads["over"].eq("GAT") & leads["pairs"].gt(0)]
    assert peak["our_lead"].item() < -15 and peak["verdict"].item() == rule.NOT_TESTED
    found = effects.summary(leads)
    assert (found["leads"], found["signed"], found["same_sign"]) == (2, 2, 2)
    assert found["our_lead"] == pytest.approx((11.6 + 0.3) / 2, abs=0.4)
    tied = effects.summary(leads.assign(printed_lead=0.0))
    assert (tied["leads"], tied["signed"], tied["same_sign"]) == (2, 0, 0)


def test_a_lead_over_a_variant_of_the_same_method_is_none() -> None:
    """The sentence on leads counts the rows of other methods, not those with other settings of the paper's own."""
    folder = paths.root() / "figures"
    known = answer.leads(folder, "gfl")
    assert known["over"].str.startswith("GFL-APPNP").any()
    others = known[~known["over"].str.startswith("GFL-APPNP")].drop(columns="exhibit").drop_duplicates()
    assert answer.numbers(folder, "gfl")["leads"] == effects.summary(others)


def test_fieller_holds_the_ratio() -> None:
    """Fieller's interval covers the true ratio in 95% of draws, and has no end where the divisor may be zero."""
    rng = np.random.default_rng(2)
    draws = 4000
    top, bottom = rng.normal(6, 1, draws), rng.normal(3, 0.5, draws)
    ends = [effects.fieller(a, 1.0, b, 0.25, 1.96) for a, b in zip(top, bottom)]
    assert np.mean([low <= 2 <= high for low, high in ends]) == pytest.approx(0.95, abs=0.012)
    assert effects.fieller(1.0, 1.0, 0.5, 1.0, 1.96) == (-math.inf, math.inf)


def row(method: str, value: str, spread: float, **changes: Any) -> dict[str, Any]:
    """Return a printed cell of a paper that has no prior, over ten runs on splits drawn anew."""
    cell = {"paper": "none", "dataset": "A", "clients": 10, "partition": "metis", "method": method, "value": value}
    cell |= {"value_number": float(value), "spread_number": spread, "spread_kind": "sd", "runs_published": 10}
    return cell | {"redrawn": True, "point": 0.01, "provenance": "", **changes}


def scored(**scores: list[float]) -> pd.DataFrame:
    """Return runs of some methods on the graph A."""
    cell = {"dataset": "A", "clients": 10, "partition": "metis"}
    return pd.DataFrame(
        [
            {**cell, "method": name, "seed": seed, "test": x}
            for name, each in scores.items()
            for seed, x in enumerate(each)
        ]
    )


OURS = scored(Top=[0.81, 0.84, 0.80, 0.83], Other=[0.74, 0.75, 0.70, 0.77])
GAPS = np.array([7.0, 9.0, 10.0, 6.0])  # of `OURS`, in points


def lead(top: dict[str, Any], other: dict[str, Any]) -> pd.Series:
    """Return the one lead of a table of two rows, measured by `OURS`."""
    found = effects.effects(OURS, pd.DataFrame([top, other]), MainTable({"method": "Top"}, value="test"))
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.parametrize("kept", [(), ("Top",), ("Other",), ("Top", "Other")])
def test_the_interval_of_a_lead_is_welchs(kept: tuple[str, ...]) -> None:
    """It has both printed spreads, over runs only if both rows redraw their splits, and both last digits."""
    top, other = (
        row(name, value, spread, redrawn=name not in kept)
        for name, value, spread in (("Top", "0.80", 0.015), ("Other", "0.7", 0.02))
    )
    judged = lead(top, other)
    ours, theirs = GAPS.var(ddof=1) / 4, (1.5**2 + 2.0**2) / (1 if kept else 10)
    freedom = (ours + theirs) ** 2 / (ours**2 / 3 + theirs**2 / 9)
    t = stats.t.ppf(0.975, freedom)
    half = t * math.sqrt(ours + theirs + (1.0**2 + 10.0**2) / 12)
    assert (judged["our_lead"], judged["printed_lead"]) == pytest.approx((8.0, 10.0))
    assert judged["difference"] == pytest.approx(-2.0) and judged["half95"] == pytest.approx(half)
    # Fieller's ends are the ratios r at which ours - r * printed is t standard errors from zero.
    ends = np.roots([10.0**2 - t**2 * theirs, -2 * 8.0 * 10.0, 8.0**2 - t**2 * ours])
    assert sorted(ends) == pytest.approx([judged["ratio_low"], judged["ratio_high"]])


def test_a_lead_on_graphs_drawn_anew_has_their_variance() -> None:
    """Scores that belong to both rows are paired over graphs; where a row has another's, their variances add up."""
    scores = [pd.Series([0.60, 0.70, 0.90, 0.80, 0.75, 0.65]), pd.Series([0.50, 0.85, 0.65, 0.60])]
    for owners in (True, True), (True, False), (False, True):
        top, other = (
            row(name, value, 0.001, redrawn=False, anew=anew, anew_own=own)
            for name, value, anew, own in zip(("Top", "Other"), ("0.80", "0.75"), scores, owners, strict=True)
        )
        between = np.var(scores[0][:4] - scores[1], ddof=1) if all(owners) else sum(np.var(s, ddof=1) for s in scores)
        within, over = GAPS.var(ddof=1), 100**2 * between
        variance = within / 4 + (over - within) + over + 2 * 1.0**2 / 12
        half = stats.t.ppf(0.975, 3) * math.sqrt(variance)  # of the four graphs that both have
        assert lead(top, other)["half95"] == pytest.approx(half)


def test_a_printed_number_of_another_protocol_has_no_lead() -> None:
    """A lead is not tested if either of its two numbers is another row's or a peak."""
    for change in {"provenance": "another row of Table 1"}, {"spread_kind": "peak"}:
        for which in range(2):
            top, other = (
                row(name, "0.8", 0.03, **(change if place == which else {}))
                for place, name in enumerate(("Top", "Other"))
            )
            assert lead(top, other)["verdict"] == rule.NOT_TESTED


def test_rows_without_a_common_seed_say_what_computes_the_missing_runs() -> None:
    """Runs on a graph of which a part is missing do not count, and the command is one that `fedrepro` knows."""
    whole = runs_of(LIKE_PRINT)
    frame = whole.assign(dataset=whole["dataset"].mask(whole["method"].eq("FedGCN"), "Cora~incomplete"))
    leads = effects.effects(frame, printed(), MainTable({"method": "FedGAT"}, value="test"))
    chosen = leads["dataset"].eq("Cora") & leads["partition"].eq("dirichlet(beta=1)")
    (why,) = leads.loc[chosen & leads["over"].eq("FedGCN"), "why"]
    command = re.match("no seed in common on the whole graph: `fedrepro run (.*) --profile paper --budget 60`", why)
    assert command and notebook.select([command[1]]) and "`fedrepro data 'Cora'`" in why


def test_a_row_that_the_paper_leads_in_print_or_not() -> None:
    """A printed lead below zero has a ratio as one above has, and one of a point at most has none."""
    rows = [row("Top", "0.70", 0.01), *(row(name, value, 0.01) for name, value in PRINTED_OTHERS.items())]
    frame = scored(Top=[0.70, 0.71], Far=[0.82, 0.81], Near=[0.70, 0.72], Below=[0.64, 0.67])
    table = effects.effects(frame, pd.DataFrame(rows), MainTable({"method": "Top"}, value="test")).set_index("over")
    ours = {"Far": -11.0, "Near": -0.5, "Below": 5.0}
    assert table["our_lead"].to_dict() == pytest.approx(ours)
    assert table["ratio"].dropna().to_dict() == pytest.approx({"Far": -11 / -10, "Below": 5 / 2})
    assert effects.summary(table.reset_index())["ratio"] == pytest.approx((11 / 10 + 5 / 2) / 2)
    assert effects.summary(table.reset_index())["same_sign"] == 3


PRINTED_OTHERS = {"Far": "0.80", "Near": "0.705", "Below": "0.68"}


def test_a_central_model_stands_beside_its_own_graph_alone() -> None:
    """The paper's method leads another row in its own column, and a central one on its own graph."""
    whole = {"partition": "single", "clients": 1}
    rows = [
        row(name, "0.7", 0.01, dataset=graph, **(whole if name == "Central" else {}))
        for graph in "AB"
        for name in NAMES
    ]
    found = effects.effects(OURS, pd.DataFrame(rows), MainTable({"method": "Top"}, value="test"))
    assert found[["dataset", "over"]].values.tolist() == [
        [graph, over] for graph in "AB" for over in ("Other", "Central")
    ]


NAMES = ("Top", "Other", "Central")


def test_the_numbers_are_those_of_the_tested_cells(tmp_path: Path) -> None:
    """Shares and median are of signed differences and of the 95% interval, and a single run is one run."""
    table = compare.judge_table(runs_of(LIKE_PRINT), printed())
    cora = table["dataset"].eq("Cora") & table["method"].ne("GAT")
    tested = (
        table[cora]
        .iloc[:4]
        .assign(
            difference=[-3.0, 1.0, 1.5, 6.0],
            half90=[4.1, 4.2, 4.9, 0.9],
            half95=[4.9, 5.0, 5.2, 1.0],
            runs=[1, 2, 3, 1],
            verdict=[rule.COMPATIBLE, rule.COMPATIBLE, rule.WIDE, rule.DIFFERS],
        )
    )
    rest = table.drop(tested.index).assign(verdict=rule.NOT_TESTED, why="not measured")
    files.save("fedgat", "FG-T1", pd.concat([tested, rest]), folder=tmp_path)
    known = answer.numbers(tmp_path, "fedgat")
    assert (known["tested"], known["median"], known["single"]) == (4, 1.25, 2)
    assert (known["within"], known["narrow"], known["partly"]) == (2 / 4, 3 / 4, {})
    assert known["absent"] == ["CiteSeer", "PubMed"]  # some numbers on Cora were measured
    assert known["expected"][rule.WIDE] > 0.5


def test_causes_are_those_of_a_cells_own_table(tmp_path: Path) -> None:
    """A number that differs has the cause of its own row, fixed as its own table's readings say; others have none."""
    words = [rule.LITTLE, rule.DIFFERS, rule.DIFFERS, rule.COMPATIBLE]
    places = [("A-T1", "Cora"), ("A-T2", "Cora"), ("A-T1", "PubMed"), ("A-T2", "PubMed")]
    table = pd.DataFrame(dict.fromkeys(readings.CELL, "x"), index=range(4)).assign(verdict=words)
    table[["exhibit", "dataset"]] = places
    ran = {"readings run": "text: differs (+3.0); code: agrees (+0.1)", "cause": "code"}
    for id_, fixed in ("A-T1", "before"), ("A-T2", "after"):
        cell = table[table["exhibit"].eq(id_) & table["dataset"].eq("Cora")][list(readings.CELL)]
        files.save("a", f"{id_}-causes", cell.assign(**ran), folder=tmp_path)
        each = cell.assign(reading="code", kind="code", fixed=fixed, explains=True, open=rule.DIFFERS)
        files.save("a", f"{id_}-by-reading", each, folder=tmp_path)
    found, _ = answer.differing(tmp_path, "a", table)
    told = [tuple(row) for row in found[["verdict", "readings run", "cause", "fixed"]].values]
    both = (ran["readings run"], "code")
    assert told == [
        (rule.LITTLE, *both, "before"), (rule.DIFFERS, *both, "after"), (rule.DIFFERS, "none", readings.NO_CAUSE, "")
    ]  # fmt: skip


def test_readings_are_counted_where_some_were_run(folder: Path) -> None:
    """A number that two readings do not fit counts with its readings, and one on which none was run counts apart."""
    cells = answer.cells(folder, "fedgat").assign(verdict=rule.DIFFERS)
    two = cells[cells["runs"].gt(0)].iloc[:2].fillna({"setting": ""})
    files.save("fedgat", "FG-T1", two, folder=folder)
    run = ["text: differs (+3.0); code: differs (+4.0)", "none"]
    causes = two[list(readings.CELL)].assign(**{"readings run": run, "cause": readings.NO_CAUSE})
    files.save("fedgat", "FG-T1-causes", causes, folder=folder)
    known = answer.numbers(folder, "fedgat")
    assert known["causes"] == {(readings.NO_CAUSE, "", rule.DIFFERS): 1}
    assert (known["unread"], known["readings"]) == (1, 2.0)
