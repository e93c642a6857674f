"""FedSheafHN's exhibits: equal budgets, frames that show what records hold, and readings next to the tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from fedsheafhn_frames import EMPTY, TABLE1, TABLE2, Extra, few, frame, in_both_views, scored

from fedrepro import paths
from fedrepro.papers.fedsheafhn.exhibits import (
    GRIDS,
    ablations,
    claims,
    grids,
    prepare,
    readings,
    settings,
    setups,
    tables,
)
from fedrepro.reporting.frames import messages
from fedrepro.reporting.layout import MARKS
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

# -- frames -----------------------------------------------------------------------------------------------------------


def test_each_method_is_scored_as_its_paper_scores_it() -> None:
    """FedAvg is scored between rounds, FED-PUB after local training; the other number is the next column."""
    runs = [run for method in ("FedAvg", "FED-PUB") for run in settings.cell(method, "Cora", 10, [0])]
    trained = frame(runs, lambda _: {"before.best.test_clients": 0.5, "after.best.test_clients": 0.75})
    scores = tables.scored(trained).set_index("method")
    assert scores.percent.to_dict() == {"FedAvg": 50.0, "FED-PUB": 75.0}
    assert scores.other.to_dict() == {"FedAvg": 75.0, "FED-PUB": 50.0} and scores["last"].isna().all()


@pytest.mark.parametrize(
    ("before", "view", "percent"), [(0.8, "before", 50.0), (0.6, "after", 75.0), (0.7, "after", 75.0)]
)
def test_pfedgraph_is_scored_in_the_view_of_better_validation(before: float, view: str, percent: float) -> None:
    """The mixed model where it is better on validation nodes, else the trained one, whatever their test scores."""
    val = {"before.best.val_clients": before, "after.best.val_clients": 0.7}
    test = {"before.best.test_clients": 0.5, "after.best.test_clients": 0.75}
    trained = frame(settings.cell("pFedGraph", "Cora", 10, [0]), lambda _: val | test)
    scores = tables.scored(trained).iloc[0]
    assert (scores["view"], scores.percent, scores.other) == (view, percent, 125 - percent)
    assert tables.scored(trained, "before").percent.tolist() == [50.0]


def test_tables_are_compared_with_their_printed_cells() -> None:
    """Runs at the printed mean are compatible with a cell of a paper that keeps one split; each row is there once."""
    paper = {("Cora", 10, "Local"): 71.26, ("Cora", 20, "Flow"): 81.42}
    runs = few(TABLE1)
    many = frame(runs, scored(lambda r: (paper.get((r.dataset, r.clients, r.method), 20) + 0.1 * (r.seed - 1)) / 100))
    table = tables.beside_published(prepare(many, "SH-T1"), "SH-T1")
    verdicts = table.set_index(["dataset", "method", "clients"]).verdict
    assert verdicts["Cora", "Local", "10"] == verdicts["Cora", "Flow", "20"] == "compatible"
    assert verdicts["Cora", "Flow", "10"] == "differs" and verdicts["Photo", "Flow", "10"] == "not tested"
    wide = tables.as_printed(table)
    assert wide.shape == (12, 13) and wide.method[5] == tables.CLASSIFIER
    assert wide.method.drop(5).tolist() == list(settings.METHODS)
    local = wide.set_index("method").loc["Local"]
    assert local["Cora, 10 clients (percent)"] == f"71.26 ± 0.10 (3) {MARKS['compatible']}"
    assert local["Photo, 10 clients (percent)"] == ""


@pytest.mark.parametrize(
    ("grid", "rows"),
    [
        (grids.modules, settings.MODULES),
        (grids.networks, settings.NETWORKS),
        (grids.readings, settings.READINGS),
    ],
)
def test_each_run_of_an_ablation_has_its_row(grid: Callable[[], list[Run]], rows: dict[str, Any]) -> None:
    """Every run is in one row, and every row has as many runs in each column; a reading that validation chose for the
    tables is the row of the tables.
    """
    used = settings.settings("FedSheafHN", "Cora", 20)
    same = {name for name, more in rows.items() if rows is settings.READINGS and more and more.items() <= used.items()}
    labelled = tables.with_rows(tables.scored(frame(few(grid(), 2), scored(lambda _: 0.5)), "after"), rows)
    names = [*rows, *([settings.BASE_MODEL] if rows is settings.MODULES else [])]
    counts = labelled.groupby(["row", "clients", "dataset"]).size()
    assert set(labelled.row) == set(names) - same and set(counts) == {2}


def test_an_ablation_is_scored_in_one_view() -> None:
    """FedAvg, the first row of Table 4, as the others are: after local training."""
    scores = {"before.best.test_clients": 0.5, "after.best.test_clients": 0.8}
    trained = frame(few(grids.modules(), 2), lambda _: scores)
    prepared = prepare(trained, "SH-T4")
    assert set(prepared.percent) == {80.0} and set(prepared[prepared.row.eq(settings.BASE_MODEL)].other) == {50.0}


def test_distances_of_a_stand_in_are_shown_where_its_graph_was_not_run() -> None:
    """The row of ogbn-arxiv has the distance of the stand-in, or that of the graph once it has runs."""
    real = settings.cell(settings.OURS, settings.ARXIV, 20, [0])
    for more, wanted in (([], 0.25), (real, 0.5)):
        runs = [*settings.cell(settings.OURS, settings.STANDIN, 20, [0]), *more]
        trained = frame(runs, lambda run: {"facts.generated_spread": 0.5 if run.dataset == settings.ARXIV else 0.25})
        trained = trained.assign(percent=70.0, row="w/ Sheaf diffusion")
        table = ablations.with_distance(ablations.beside_published(trained, "SH-T5"), trained)
        shown = table.dropna(subset=["generated_spread"])
        assert shown[["dataset", "method", "clients"]].values.tolist() == [[settings.ARXIV, "w/ Sheaf diffusion", "20"]]
        assert shown["generated_spread"].tolist() == [wanted] and shown["runs"].tolist() == [1]
        assert (shown["why"].item() == "measured on a stand-in") == (not more)
    empty = prepare(EMPTY, "SH-T5")
    assert ablations.with_distance(ablations.beside_published(empty, "SH-T5"), empty)["generated_spread"].isna().all()


def test_messages_are_summed_over_a_run_and_averaged_over_seeds() -> None:
    """The table of SH-F2 has a row for each stage, direction and kind that a method sends, and none without."""
    sent = {"traffic.before.up.embedding": 10.0, "traffic.training.down.generated weights": 300.0}
    plain = {"traffic.training.down.weights": 40.0, "traffic.bytes.training": 160.0}
    counted = frame(few(grids.exchanged()), lambda run: sent if run.method == "FedSheafHN" else plain)
    counted.loc[counted.seed.eq(2), "traffic.training.down.generated weights"] += 3.0
    table = messages(counted, ["dataset", "method", "clients"])
    assert set(table.method) == {"FedSheafHN", "FedAvg"} and set(table.clients) == {10, 20} and len(table) == 6
    rows = table[table.clients.eq(10)].set_index(["method", "stage", "direction", "message"])[["scalars", "runs"]]
    assert rows.loc[("FedSheafHN", "before", "up", "embedding")].tolist() == [10, 3]
    assert rows.loc[("FedSheafHN", "training", "down", "generated weights")].tolist() == [301, 3]
    assert rows.loc[("FedAvg", "training", "down", "weights")].tolist() == [40, 3]
    empty = messages(Store(paths.root() / "nowhere").frame([]), ["dataset", "clients"])
    assert empty.empty and list(empty) == list(table.drop(columns="method"))


def test_a_guess_without_training_is_shown_next_to_the_tables() -> None:
    """Published cells and ours are counted by method if they are at or below the most frequent class; a column without
    statistics, and a cell without runs, count nowhere.
    """
    statistics = frame(few(grids.statistics(10, 20), 2), lambda run: {"majority": 0.7 + 0.01 * run.seed})
    runs = [run for run in few(TABLE1, 2) if run.method != "Flow"]
    trained = prepare(frame(runs, scored(lambda run: 0.7 if run.method == "Local" else 0.8)), "SH-T1")
    table = tables.with_majority(tables.beside_published(trained, "SH-T1"), statistics)
    level = table.dropna(subset=["majority"]).drop_duplicates(["dataset", "clients"])["majority"]
    assert sorted(level) == pytest.approx([70.5] * 4)
    below = tables.count_below_majority(table)
    assert below.loc["Local"].tolist() == [2, 4, 4, 4]  # 71.26, 74.65, 67.82, 65.98
    assert below.loc["FedSheafHN"].tolist() == [0, 4, 0, 4] and below.loc["Flow"].tolist() == [1, 4, 0, 0]
    marks = table.set_index(["method", "dataset", "clients"])["at_majority"]
    assert marks["Local", "Cora", "10"] == "ours" and marks["Flow", "CiteSeer", "20"] == "published"
    assert marks["Local", "CiteSeer", "10"] == "both" and marks[settings.OURS, "Cora", "10"] == ""
    wide = tables.as_printed(table).set_index("method")["CiteSeer, 20 clients (percent)"]
    assert wide["Local"].endswith("†‡") and wide["Flow"] == "‡" and wide[settings.OURS][-1] not in "†‡"
    empty = tables.with_majority(table.drop(columns=["majority", "at_majority"]), EMPTY)
    assert empty.majority.isna().all() and set(empty.at_majority) == {""}


def test_clients_of_one_partition_are_shown_together() -> None:
    """The first seed that all methods have; where they share none, each one's first."""
    rows = [("Flow", 0), ("Flow", 1), ("Flow", 2), ("FED-PUB", 1), ("FED-PUB", 2)]
    cells = [(graph, *row, client) for graph in ("Cora", "CiteSeer") for row in rows for client in (0, 1)]
    clients = pd.DataFrame(cells, columns=["dataset", "method", "seed", "client"])
    clients = clients.assign(percent=50.0 + clients.seed, vectors=None)
    clients = clients[~(clients.dataset.eq("CiteSeer") & clients.method.eq("Flow") & clients.seed.ne(0))]
    seeds = tables.one_partition(clients).groupby(["dataset", "method"]).seed.agg(["min", "max", "count"])
    assert seeds.loc["Cora"].to_numpy().tolist() == [[1, 1, 2]] * 2
    assert seeds.loc["CiteSeer"].to_numpy().tolist() == [[1, 1, 2], [0, 0, 2]]
    assert tables.one_partition(clients.iloc[:0]).empty


def test_fast_is_what_the_first_twenty_rounds_say() -> None:
    """The area is the mean over the first 20 rounds: a method that is late by five rounds has a smaller one, whatever
    comes after round 20, and a run is paired with the other method's run of its seed.
    """
    curves = {settings.OURS: [0.8] * 20 + [0.1] * 10, "FedProx": [0.4] * 5 + [0.8] * 25}
    curve = pd.DataFrame(curves).rename_axis("round").rename(index=lambda place: place + 1)
    points = curve.reset_index().melt("round", var_name="method", value_name="share").assign(dataset="Cora")
    points = pd.concat([points.assign(seed=seed, val=100 * points.share + seed) for seed in (0, 3)])
    found = claims.areas(points).set_index(["method", "seed"])["area"]
    assert found[settings.OURS].tolist() == [80.0, 83.0] and found["FedProx"].tolist() == [70.0, 73.0]
    assert claims.areas(points.iloc[:0]).empty


def test_clients_and_rounds_come_from_the_record() -> None:
    """A list of accuracies becomes one row a client; two rounds become two rows; the bias is the best test round's."""
    runs = settings.cell("Flow", "Cora", 20, [0, 1]) + settings.cell("FedAvg", "Cora", 20, [0, 1])

    def extra(run: Run) -> dict[str, Any]:
        view = settings.METHODS[run.method].view
        test = [0.5, 0.6, 0.65 + 0.1 * run.seed]
        series = {"clients": [0.5, None, 0.7], "val": [0.6, 0.9, 0.8], "test_clients": test}
        return {f"series.{view}.{name}": values for name, values in series.items()}

    scores = tables.scored(frame(runs, extra))
    clients = tables.clients_of(scores)
    assert clients[clients.method == "Flow"].client.tolist() == [0, 2, 0, 2]
    spread = tables.spread_over_clients(scores, "SH-T3").query("runs > 0").set_index("method")
    assert spread.loc["Flow", "ours_mean"] == pytest.approx(60)
    assert spread.loc["Flow", "ours_sd_over_clients"] == pytest.approx(10)  # by the number of clients, as in a record
    assert tables.rounds_of(scores).groupby(["method", "seed"]).size().eq(3).all()
    bias = tables.selection_bias(scores).set_index("method")
    assert bias.loc["FedAvg", "points_mean"] == pytest.approx(10)
    assert bias.loc["FedAvg", "points_max"] == pytest.approx(15)
    # FedAvg's record has no list of that view here.
    assert set(tables.rounds_of(tables.scored(scores, "after")).method) == {"Flow"}


def test_the_round_that_reaches_the_printed_number_is_that_of_the_mean_curve() -> None:
    """Two runs of 40, 60, 80 and 60, 80, 70 percent have the means 50, 70, 75.

    A print of 70 is reached in round 2, one of 50 in round 1, and one of 75.1 in none.
    """
    curves = {0: [0.4, 0.6, 0.8], 1: [0.6, 0.8, 0.7]}
    runs = settings.cell("Flow", "Cora", 20, [0, 1])

    def extra(run: Run) -> dict[str, Any]:
        view = settings.METHODS[run.method].view
        return {f"series.{view}.{name}": curves[run.seed] for name in ("val", "test_clients")}

    scores = tables.scored(frame(runs, extra))
    cell = {"dataset": "Cora", "method": "Flow", "clients": "20", "majority": 30.0}
    table = pd.DataFrame([cell, cell | {"clients": "10"}])
    for printed, wanted in ((70.0, 2), (50.0, 1), (75.1, math.nan)):
        early = tables.reached(scores, table.assign(published_mean=printed))
        assert early[["clients", "rounds", "runs"]].values.tolist() == [[20, 3, 2]]
        assert early["first"].item() == pytest.approx(50)
        assert early["reached"].item() == pytest.approx(wanted, nan_ok=True)
    assert tables.reached(scores, table.assign(published_mean=math.nan)).empty
    assert tables.reached(scores.iloc[:0], table.assign(published_mean=70.0)).empty


@pytest.mark.parametrize(
    ("exhibit_id", "make"),
    [
        ("SH-T3", tables.clients_of),
        ("SH-M1", tables.rounds_of),
        ("SH-M1", tables.selection_bias),
        ("SH-F7", ablations.attack_runs),
        ("SH-F7", ablations.attack_table),
        ("SH-F7", ablations.attack_cost),
        ("SH-F5", ablations.new_clients),
        ("SH-F5", ablations.new_procedure),
        ("SH-F3", ablations.stages),
        ("SH-M3", ablations.choice_table),
    ],
)
def test_an_empty_store_gives_empty_frames(exhibit_id: str, make: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """An empty store is no error: the columns are there, and the rows are not."""
    made = make(prepare(EMPTY, exhibit_id))
    assert made.empty and len(made.columns) > 2


@pytest.mark.parametrize(("exhibit_id", "printed"), [("SH-T3", 8), ("SH-F1b", 2)])
def test_published_spreads_stand_beside_their_own_graph_alone(exhibit_id: str, printed: int) -> None:
    """Runs on Cora and on the stand-in have no published pair; printed ones have rows, with ours where it is run."""

    def extra(run: Run) -> dict[str, Any]:
        return in_both_views(clients=[0.5, 0.7])

    assert len(tables.spread_over_clients(prepare(EMPTY, exhibit_id), exhibit_id)) == printed
    runs = [run for d in ("Cora", settings.STANDIN, settings.ARXIV) for run in settings.cell(settings.OURS, d, 20, [0])]
    table = tables.spread_over_clients(prepare(frame(runs, extra), exhibit_id), exhibit_id)
    both = table[table.runs.gt(0) & table.published_mean.notna()]
    assert len(table) == printed + 2 and both.dataset.tolist() == [settings.ARXIV]
    assert both.ours_mean.tolist() == pytest.approx([60]) and both.published_mean.tolist() == [71.88]


def test_the_servers_price_is_compared_with_no_stand_in() -> None:
    """Published seconds are shown for real graphs; the growth is that of ours and of the printed per cent."""
    rows = [run for run in grids.server() if run.options["of"] == settings.OURS]
    fixed = {"timing.round_seconds": 10.0, "timing.peak_mebibytes": 100.0}
    timed = frame(rows, lambda run: {**fixed, "timing.server_seconds": run.clients / 20})
    table = ablations.server_table(prepare(timed, "SH-T6"))
    assert table[table.published_seconds.notna()].dataset.unique().tolist() == ["Cora", "Computers"]
    growth = ablations.server_growth(table)
    hundred = growth[growth.clients.eq(100)].set_index("dataset")
    assert hundred.ours.tolist() == pytest.approx([400, 400, 400])
    assert hundred.published.dropna().to_dict() == {"Cora": 4.42, "Computers": 4.42}
    assert growth[growth.runs.eq(0)].published.tolist() == [3, 300, 2500]
    timed.loc[timed.dataset.eq("Cora") & timed.clients.eq(100), "environment"] = "elsewhere"
    table = ablations.server_table(prepare(timed, "SH-T6")).set_index(["dataset", "clients"])
    assert pd.isna(table.relative["Cora", 100]) and table.relative.notna().sum() == len(table) - 1


def test_a_choice_is_paired_with_the_cells_without_it() -> None:
    """Runs with the other choice are compared with the same seeds of SH-T1; one run has no interval."""
    runs = [run for run in grids.choices() if not (run.method == "Flow" and run.seed > 0)]

    def score(run: Run) -> float:
        return 0.5 + 0.01 * run.seed + 0.1 * ("input_dropout" in run.options) - 0.2 * ("scaled" in run.options)

    table = ablations.choice_table(prepare(frame(runs, scored(score)), "SH-M3"))
    assert len(table) == 13 and table.groupby("choice", sort=False).size().tolist() == [11, 1, 1]
    assert table["so minus SH-T1"].dropna().round(6).value_counts().to_dict() == {10: 11, -20: 1, 0: 1}
    assert table[table.method.eq("Flow")][["low", "runs"]].isna().to_numpy().tolist() == [[True, False]]


def test_what_an_attack_costs_is_paired_and_a_gain_is_a_negative_cost() -> None:
    """Losses of each seed against itself; a method that gains in every run costs less than one that does not."""
    gain = {settings.OURS: (-0.002, 0.003, -0.001), "FED-PUB": (0.05, 0.051, 0.052)}

    def score(run: Run) -> float:
        return 0.5 + 0.1 * run.seed + (gain[run.method][run.seed] if run.options.get("malicious") else 0)

    attacked = prepare(frame(few(grids.malicious()), scored(score)), "SH-F7")
    table = ablations.attack_table(attacked)
    costs = table[table["method and attack"].str.startswith("FED-PUB")]["cost"].dropna()
    assert len(costs) == 6 and costs.tolist() == pytest.approx([-5.1] * 6)
    text, verdict = next(c for c in claims.CLAIMS if c.id == "SH-C6").judge(lambda _: attacked)
    assert verdict == "fails" and text.startswith("0 shown, 6 contradicted")


def test_statistics_agree_to_the_digit_within_the_range_or_not() -> None:
    """The 2,485 nodes agree only if they are 2,485; a part's 891 edges lie between 880 and 900; 0.606 is not 0.7."""
    runs = [run for run in grids.statistics(10, 20) if run.seed < 2 and run.dataset in ("Cora", settings.PARTLY)]

    def extra(run: Run) -> dict[str, Any]:
        part = run.clients > 1
        counts = {"nodes": 248.5 if part else 2485, "edges": 870 + 30 * run.seed, "classes": 7}
        return {**counts, "clustering": 0.2381, "heterogeneity": 0.7 if part else None}

    table = setups.statistics_table(frame(runs, extra), "SH-T7")
    agreement = table[table.dataset.eq("Cora")].set_index(["clients", "metric"]).agreement
    assert (
        agreement["", "nodes"] == agreement["10", "nodes"] == agreement["", "clustering coefficient"] == "to the digit"
    )
    assert agreement["10", "edges"] == "within our range" and agreement["10", "heterogeneity"] == "differs by +15.5%"
    assert agreement["", "heterogeneity"] == "" and len(table) == 78
    assert set(table[table.runs.gt(0)].dataset) == {"Cora", settings.PARTLY}


# -- other protocols --------------------------------------------------------------------------------------------------


def test_the_lineages_protocol_differs_from_the_tables_in_what_its_code_has() -> None:
    """Six methods, 20/40/40, one epoch, FED-PUB's rates; scored after local training; nothing else changes."""
    runs = GRIDS["SH-T1-lineage"].paper()
    assert len({run.key for run in runs}) == 6 * 2 * 2 * 3 and {run.split for run in runs} == {"20/40/40"}
    assert {(run.options["rounds"], run.options["local_epochs"]) for run in runs} == {(100, 1)}
    rates = {(run.dataset, run.options["lr"], run.options["weight_decay"]) for run in runs}
    assert rates == {("Cora", 0.01, 1e-6), ("CiteSeer", 0.001, 1e-6)} and {r.options["dropout"] for r in runs} == {0.5}
    usual = next(run for run in TABLE1 if run.dataset == "Cora" and run.method == "FED-PUB")
    assert runs[0].prepare == usual.prepare and runs[0].options["model"] == usual.options["model"]
    trained = prepare(
        frame(few(runs), lambda _: {"before.best.test_clients": 0.1, "after.best.test_clients": 0.6}), "SH-T1-lineage"
    )
    table = readings.lineage_table(trained, ["Cora", "CiteSeer"])
    assert len(table) == 24 and set(table.ours_mean) == {60.0} and set(table.runs) == {3}
    rows = table.set_index(["dataset", "method", "clients"])
    assert rows.published["Cora", "FedAvg", "10"] == "69.19 ± 0.67" and not rows.copied["Cora", "FedAvg", "10"]
    assert rows["SH-T1 prints"]["Cora", "FedAvg", "10"] == "72.38 ± 2.45"
    copied = table[table.copied].groupby("method", sort=False).size().to_dict()
    assert copied == {"Local": 2, "FedProx": 4, "FedSage+": 4}


def test_the_literal_reading_is_the_first_point_of_every_method() -> None:
    """Adam, rate 0.01 and weight decay 0.0005 for all ten; a cell that already has them is that of the tables."""
    runs = GRIDS["SH-T1-literal"].paper()
    assert len({run.key for run in runs}) == 10 * 2 * 4 * 3
    options = [run.options for run in runs]
    assert {(o["lr"], o["weight_decay"], o["local_epochs"], o["rounds"]) for o in options} == {(0.01, 0.0005, 3, 100)}
    assert not any("optimizer" in o or "momentum" in o for o in options)
    tables_runs = {*TABLE1, *TABLE2}
    assert {(run.dataset, run.method) for run in runs if run in tables_runs} >= {("CiteSeer", "Local")}


def test_the_literal_reading_stands_next_to_the_main_one() -> None:
    """Literal runs at the printed number fit on Cora; on CiteSeer, where runs scatter more, three leave it too wide."""
    paper = pd.concat([tables.printed("SH-T1"), tables.printed("SH-T2")])
    level = {(p.dataset, p.method, p.clients): p.value_number for p in paper.itertuples()}

    def at(shift: float) -> Extra:
        return scored(lambda r: (level[r.dataset, r.method, str(r.clients)] + shift + 0.1 * r.seed) / 100)

    kept = [run for run in few([*TABLE1, *TABLE2]) if run.method in ("pFedGraph", "Flow")]
    shifted = frame([run for run in kept if run.method == "pFedGraph"], at(20.0))
    both = pd.concat([shifted, frame([run for run in kept if run.method == "Flow"], at(0.0))], ignore_index=True)
    scores = {name: tables.scored(both[both.clients.isin(counts)]) for name, counts in claims.TABLES.items()}
    main = pd.concat([tables.beside_published(each, name) for name, each in scores.items()], ignore_index=True)
    runs = [run for run in few(GRIDS["SH-T1-literal"].paper()) if run.method in ("pFedGraph", "Flow", "FedProx")]
    table = readings.literal_table(tables.scored(frame(runs, at(0.0))), main)
    summary = readings.literal_summary(table).set_index("method")
    assert len(table) == 80 and list(summary.index) == ["pFedGraph", "Flow"]
    assert summary.loc["pFedGraph"].tolist() == pytest.approx([20.1, 0.1, 0, 4, 8, 8, 3])
    assert summary.loc["Flow"].tolist() == pytest.approx([0.1, 0.1, 4, 4, 8, 8, 3])
    copied = table[table.method.eq("FedProx") & table.exhibit.eq("SH-T1")]
    assert set(copied.verdict) == {"not tested"}  # the printed numbers are another work's


def test_fggps_vote_is_shown_next_to_its_classifier() -> None:
    """Each reading has its row; the vote is what the server's model gives, the classifier the trained clients'."""
    runs = GRIDS["SH-M4"].paper()

    def extra(run: Run) -> dict[str, Any]:
        vote = 0.6 + 0.1 * ("activated" in run.method) + 0.01 * run.seed
        return {"before.best.test_clients": vote, "after.best.test_clients": 0.8}

    made = frame(runs, extra)
    table = readings.fggp_table(prepare(made, "SH-M4")).set_index("row")
    assert table.index.tolist() == list(settings.FGGP_READINGS) and set(table.runs) == {3}
    assert table["vote"].tolist() == pytest.approx([61, 71, 61, 71]) and set(table["classifier"]) == {80.0}
    assert table["vote minus SH-T1"].tolist() == pytest.approx([0, 10, 0, 10])
    assert readings.fggp_table(prepare(EMPTY, "SH-M4"))["runs"].tolist() == [0] * 4
