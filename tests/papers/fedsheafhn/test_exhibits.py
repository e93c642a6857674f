"""FedSheafHN's exhibits: equal budgets, frames that show what records hold, claims that can come out either way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

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
from fedrepro.reporting.claims import Claim, Derived, Difference, claims_table
from fedrepro.reporting.figures import MARKS
from fedrepro.reporting.frames import messages, select
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

Extra = Callable[[Run], dict[str, Any]]
EMPTY = Store(paths.root() / "nowhere").frame([])
TABLE1, TABLE2 = GRIDS["SH-T1"].paper(), GRIDS["SH-T2"].paper()


def frame(runs: list[Run], extra: Extra) -> pd.DataFrame:
    """A frame as the store makes it: fields and options of runs, with made-up results."""
    rows = []
    for run in dict.fromkeys(runs):
        fields = {name: value for name, value in run.to_dict().items() if name != "options"}
        rows.append(
            {"key": run.key, **fields, **dict(run.options), "status": "ok", "environment": "here", **extra(run)}
        )
    return pd.DataFrame(rows)


def scored(score: Callable[[Run], float]) -> Extra:
    """Both views at the best and the last round, on test and on validation nodes."""
    names = [f"{v}.{r}.{on}_clients" for v in ("before", "after") for r in ("best", "last") for on in ("test", "val")]
    return lambda run: dict.fromkeys(names, score(run))


def few(runs: list[Run], seeds: int = 3) -> list[Run]:
    """The first seeds, without the large graphs."""
    return [run for run in runs if run.seed < seeds and run.dataset in ("Cora", "CiteSeer")]


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_smoke_has_one_short_run_a_method() -> None:
    """In smoke Table 1 and the panels of Figure 4 share one run of two rounds for each method."""
    runs = GRIDS["SH-T1"].runs("smoke")
    assert [run.method for run in runs] == list(settings.METHODS)
    assert {run.options["rounds"] for run in [*runs, *GRIDS["SH-F5"].runs("smoke")]} == {2}
    assert all(GRIDS[name].runs("smoke") == runs for name in ("SH-F4a", "SH-F4b", "SH-F4c", "SH-M1"))


def test_every_method_has_the_same_budget() -> None:
    """Twelve points each, of both weight decays; as many trials on each graph; a column has one budget of epochs."""
    for points in settings.POINTS.values():
        assert len(points) == len({tuple(sorted(each.items())) for each in points}) == 12
        assert [each["weight_decay"] for each in points] == [0.0005] * 6 + [1e-6] * 6
    trials = pd.Series([(run.dataset, run.method) for run in grids.tuning()]).value_counts()
    assert len(trials) == 4 * 11 and set(trials) == {12}
    columns: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for run in [*TABLE1, *TABLE2]:
        budget = (run.options["rounds"], run.options["local_epochs"])
        columns.setdefault((run.dataset, run.clients), set()).add(budget)
    assert len(columns) == 24 and all(len(each) == 1 for each in columns.values())


def test_no_reported_run_uses_the_tuning_seed() -> None:
    """What hyper-parameters were chosen on is not what is reported."""
    tuned = {run.seed for run in grids.tuning()}
    reported = {run.seed for name, grid in GRIDS.items() if name != "SH-T9" for run in grid.paper()}
    assert tuned == {settings.TUNING_SEED} and settings.TUNING_SEED not in reported


def test_choices_follow_from_the_stored_trials() -> None:
    """The file holds the best of each method's twelve stored points, and nothing where a trial is missing."""
    stored = Store(paths.root() / "data" / "results").frame(grids.tuning())
    rows = setups.choices(stored)
    assert settings.chosen() == {(row.dataset, row.method): row.place for row in rows.itertuples()}


@pytest.mark.parametrize(
    ("method", "fact"),
    [("pFedHN", "spread"), ("FED-PUB", "similarity_spread"), ("FedSheafHN", "generated_spread")],
)
def test_methods_are_alive_with_the_settings_of_the_tables(method: str, fact: str) -> None:
    """In every stored run of SH-T1 and T2 the server tells clients apart: a dead hypernetwork's differ by 1e-7."""
    runs = [run for run in [*TABLE1, *TABLE2] if run.method == method]
    spread = Store(paths.root() / "data" / "results").frame(runs)[f"facts.{fact}"]
    assert len(spread) >= 24 and spread.min() > 1e-3


def test_fedsage_learns_more_than_the_most_frequent_class() -> None:
    """SH-B1: by more than five points in every stored run on Cora and CiteSeer."""
    stored = Store(paths.root() / "data" / "results").frame
    trained, statistics = (
        [run for run in runs if run.dataset in ("Cora", "CiteSeer")]
        for runs in ([*TABLE1, *TABLE2], grids.statistics(10, 20, 30, 50))
    )
    cell = ["dataset", "clients", "seed"]
    level = stored([run for run in statistics if run.clients > 1]).set_index(cell)["majority"].astype(float)
    mine = tables.scored(stored([run for run in trained if run.method == "FedSage+"])).set_index(cell)["percent"]
    assert len(mine) >= 24 and (mine - 100 * level.reindex(mine.index)).min() > 5


def test_the_best_trial_is_chosen_on_validation() -> None:
    """The place of the highest validation accuracy in the method's own view (pFedGraph: in the better), of equals the
    lowest validation loss; test scores and a method with a missing trial have no say.
    """
    runs = [run for run in grids.tuning() if run.dataset == "Cora"]
    tenth = {"Flow": 3, "Local": 5}

    def extra(run: Run) -> dict[str, Any]:
        points = settings.POINTS[run.method]
        place = next(i for i, p in enumerate(points) if all(run.options[name] == p[name] for name in p))
        val = 0.8 if place == tenth.get(run.method) else 0.7
        loss = 0.5 if place == 7 else 0.6
        view = settings.METHODS[run.method].view.replace("better", "after")
        other = "after" if view == "before" else "before"
        return {f"{view}.best.val_clients": val, f"{other}.best.val_clients": 0.9 if place == 1 else 0.1,
                f"{view}.best.val_loss": loss, f"{other}.best.val_loss": 0.1 if place == 4 else 0.9,
                f"{view}.best.test_clients": 1.0 if place == 2 else 0.0}  # fmt: skip

    made = frame(runs, extra)
    made = made[~(made.method.eq("FedPer") & made.lr.eq(0.02))]
    found = setups.choices(made).set_index("method")["place"].to_dict()
    assert found["Flow"] == 3 and found["Local"] == 5 and found["FedAvg"] == 7 and "FedPer" not in found
    assert found["pFedGraph"] == 1
    assert len(found) == 10


def test_overlap_and_large_graph_have_their_own_settings() -> None:
    """FED-PUB's similarity is sharper with overlap; ogbn-arxiv is undirected and keeps its features."""
    assert settings.settings("FED-PUB", "Cora", 30)["scale"] == 5 and "scale" not in settings.settings(
        "FED-PUB", "Cora", 10
    )
    assert settings.setup(settings.STANDIN, 10)["prepare"] == "undirected+largest-component"
    assert settings.setup("Photo", 30)["partition"] == "overlapping-metis(parts=6)"
    assert settings.settings("Local", "Photo", 10)["rounds"] == 150


# -- frames -----------------------------------------------------------------------------------------------------------


def test_each_method_is_scored_as_its_paper_scores_it() -> None:
    """FedAvg between rounds, FED-PUB after local training; the other number stands beside it."""
    runs = [run for method in ("FedAvg", "FED-PUB") for run in settings.cell(method, "Cora", 10, [0])]
    made = frame(runs, lambda _: {"before.best.test_clients": 0.5, "after.best.test_clients": 0.75})
    found = tables.scored(made).set_index("method")
    assert found.percent.to_dict() == {"FedAvg": 50.0, "FED-PUB": 75.0}
    assert found.other.to_dict() == {"FedAvg": 75.0, "FED-PUB": 50.0} and found["last"].isna().all()


@pytest.mark.parametrize(
    ("before", "view", "percent"), [(0.8, "before", 50.0), (0.6, "after", 75.0), (0.7, "after", 75.0)]
)
def test_pfedgraph_is_scored_in_the_view_of_better_validation(before: float, view: str, percent: float) -> None:
    """The mixed model where it is better on validation nodes, else the trained one, whatever their test scores."""
    made = frame(settings.cell("pFedGraph", "Cora", 10, [0]), lambda _: {
        "before.best.val_clients": before, "after.best.val_clients": 0.7,
        "before.best.test_clients": 0.5, "after.best.test_clients": 0.75,
    })  # fmt: skip
    found = tables.scored(made).iloc[0]
    assert (found["view"], found.percent, found.other) == (view, percent, 125 - percent)
    assert tables.scored(made, "before").percent.tolist() == [50.0]


def test_tables_are_held_against_their_printed_cells() -> None:
    """Runs at the printed mean are compatible with a cell of a paper that keeps one split; each row is there once."""
    paper = {("Cora", 10, "Local"): 71.26, ("Cora", 20, "Flow"): 81.42}
    runs = few(TABLE1)
    made = frame(runs, scored(lambda r: (paper.get((r.dataset, r.clients, r.method), 20) + 0.1 * (r.seed - 1)) / 100))
    table = tables.beside_published(prepare(made, "SH-T1"), "SH-T1")
    found = table.set_index(["dataset", "method", "clients"]).verdict
    assert found["Cora", "Local", "10"] == found["Cora", "Flow", "20"] == "compatible"
    assert found["Cora", "Flow", "10"] == "differs" and found["Photo", "Flow", "10"] == "not tested"
    wide = tables.as_printed(table)
    assert wide.shape == (12, 13) and wide.method[5] == tables.CLASSIFIER
    assert wide.method.drop(5).tolist() == list(settings.METHODS)
    assert wide.set_index("method").loc["Local", "Cora, 10 clients"] == f"71.26 ± 0.10 (3) {MARKS['compatible']}"
    assert wide.set_index("method").loc["Local", "Photo, 10 clients"] == ""


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
    found = tables.with_rows(tables.scored(frame(few(grid(), 2), scored(lambda _: 0.5)), "after"), rows)
    names = [*rows, *([settings.BASE_MODEL] if rows is settings.MODULES else [])]
    counts = found.groupby(["row", "clients", "dataset"]).size()
    assert set(found.row) == set(names) - same and set(counts) == {2}


def test_an_ablation_is_scored_in_one_view() -> None:
    """FedAvg, the first row of Table 4, as the others are: after local training."""
    made = frame(
        few(grids.modules(), 2),
        lambda _: {f"{v}.best.test_clients": x for v, x in (("before", 0.5), ("after", 0.8))},
    )
    found = prepare(made, "SH-T4")
    assert set(found.percent) == {80.0} and set(found[found.row.eq(settings.BASE_MODEL)].other) == {50.0}


def test_messages_are_summed_over_a_run_and_averaged_over_seeds() -> None:
    """SH-F2: by stage, direction and kind; a kind that a method never sends has no row."""
    sent = {"traffic.before.up.embedding": 10.0, "traffic.training.down.generated weights": 300.0}
    plain = {"traffic.training.down.weights": 40.0, "traffic.bytes.training": 160.0}
    made = frame(few(grids.exchanged()), lambda run: sent if run.method == "FedSheafHN" else plain)
    made.loc[made.seed.eq(2), "traffic.training.down.generated weights"] += 3.0
    table = messages(made, ["dataset", "method", "clients"])
    assert set(table.method) == {"FedSheafHN", "FedAvg"} and set(table.clients) == {10, 20} and len(table) == 6
    rows = table[table.clients.eq(10)].set_index(["method", "stage", "direction", "message"])[["scalars", "runs"]]
    assert rows.loc[("FedSheafHN", "before", "up", "embedding")].tolist() == [10, 3]
    assert rows.loc[("FedSheafHN", "training", "down", "generated weights")].tolist() == [301, 3]
    assert rows.loc[("FedAvg", "training", "down", "weights")].tolist() == [40, 3]
    empty = messages(Store(paths.root() / "nowhere").frame([]), ["dataset", "clients"])
    assert empty.empty and list(empty) == list(table.drop(columns="method"))


def test_what_needs_no_training_is_set_beside_the_tables() -> None:
    """Of 44 columns' cells those at or below the most frequent class are counted, published and ours; a column without
    statistics, and a cell without runs, count nowhere.
    """
    statistics = frame(few(grids.statistics(10, 20), 2), lambda run: {"majority": 0.7 + 0.01 * run.seed})
    runs = [run for run in few(TABLE1, 2) if run.method != "Flow"]
    made = prepare(frame(runs, scored(lambda run: 0.7 if run.method == "Local" else 0.8)), "SH-T1")
    table = tables.with_majority(tables.beside_published(made, "SH-T1"), statistics)
    level = table.dropna(subset=["majority"]).drop_duplicates(["dataset", "clients"])["majority"]
    assert sorted(level) == pytest.approx([70.5] * 4)
    found = tables.untrained(table)
    assert found.loc["Local"].tolist() == [2, 4, 4, 4]  # 71.26, 74.65, 67.82, 65.98
    assert found.loc["FedSheafHN"].tolist() == [0, 4, 0, 4] and found.loc["Flow"].tolist() == [1, 4, 0, 0]
    marks = table.set_index(["method", "dataset", "clients"])["at_majority"]
    assert marks["Local", "Cora", "10"] == "ours" and marks["Flow", "CiteSeer", "20"] == "published"
    assert marks["Local", "CiteSeer", "10"] == "both" and marks[settings.OURS, "Cora", "10"] == ""
    wide = tables.as_printed(table).set_index("method")["CiteSeer, 20 clients"]
    assert wide["Local"].endswith("†‡") and wide["Flow"] == "‡" and wide[settings.OURS][-1] not in "†‡"
    empty = tables.with_majority(table.drop(columns=["majority", "at_majority"]), EMPTY)
    assert empty.majority.isna().all() and set(empty.at_majority) == {""}


def test_clients_of_one_partition_are_shown_together() -> None:
    """The first seed that all methods have; where they share none, each one's first."""
    rows = [("Flow", 0), ("Flow", 1), ("Flow", 2), ("FED-PUB", 1), ("FED-PUB", 2)]
    made = pd.DataFrame([{"dataset": d, "method": m, "seed": s, "client": c, "percent": 50.0 + s, "vectors": None}
                         for d in ("Cora", "CiteSeer") for m, s in rows for c in (0, 1)])  # fmt: skip
    made = made[~(made.dataset.eq("CiteSeer") & made.method.eq("Flow") & made.seed.ne(0))]
    found = tables.one_partition(made).groupby(["dataset", "method"]).seed.agg(["min", "max", "count"])
    assert found.loc["Cora"].to_numpy().tolist() == [[1, 1, 2]] * 2
    assert found.loc["CiteSeer"].to_numpy().tolist() == [[1, 1, 2], [0, 0, 2]]
    assert tables.one_partition(made.iloc[:0]).empty


def test_fast_is_what_the_first_twenty_rounds_say() -> None:
    """The area is the mean over the first 20 rounds: a method that is late by five rounds has a smaller one, whatever
    comes after round 20, and a run is paired with the other method's run of its seed.
    """
    curves = {settings.OURS: [0.8] * 20 + [0.1] * 10, "FedProx": [0.4] * 5 + [0.8] * 25}
    points = pd.DataFrame([{"dataset": "Cora", "method": name, "seed": seed, "round": number, "val": 100 * val + seed}
                           for name, curve in curves.items() for seed in (0, 3)
                           for number, val in enumerate(curve, start=1)])  # fmt: skip
    found = claims.areas(points).set_index(["method", "seed"])["area"]
    assert found[settings.OURS].tolist() == [80.0, 83.0] and found["FedProx"].tolist() == [70.0, 73.0]
    assert claims.areas(points.iloc[:0]).empty


def test_clients_and_rounds_come_from_the_record() -> None:
    """A list of accuracies becomes one row a client; two rounds become two rows; the bias is the best test round's."""
    runs = settings.cell("Flow", "Cora", 20, [0, 1]) + settings.cell("FedAvg", "Cora", 20, [0, 1])

    def extra(run: Run) -> dict[str, Any]:
        view = settings.METHODS[run.method].view
        return {f"series.{view}.clients": [0.5, None, 0.7], f"series.{view}.val": [0.6, 0.9, 0.8],
                f"series.{view}.test_clients": [0.5, 0.6, 0.65 + 0.1 * run.seed]}  # fmt: skip

    made = tables.scored(frame(runs, extra))
    each = tables.clients_of(made)
    assert each[each.method == "Flow"].client.tolist() == [0, 2, 0, 2]
    spread = tables.spreads(made, "SH-T3").query("runs > 0").set_index("method")
    assert spread.loc["Flow", "ours_mean"] == pytest.approx(60)
    assert spread.loc["Flow", "ours_sd_over_clients"] == pytest.approx(200**0.5)
    assert tables.rounds_of(made).groupby(["method", "seed"]).size().eq(3).all()
    bias = tables.selection_bias(made).set_index("method")
    assert bias.loc["FedAvg", "points_mean"] == pytest.approx(10)
    assert bias.loc["FedAvg", "points_max"] == pytest.approx(15)
    assert set(tables.rounds_of(tables.scored(made, "after")).method) == {
        "Flow"
    }  # FedAvg's record has none of that view here


@pytest.mark.parametrize(
    ("exhibit_id", "make"),
    [
        ("SH-T3", tables.clients_of),
        ("SH-M1", tables.rounds_of),
        ("SH-M1", tables.selection_bias),
        ("SH-F7", ablations.attacked),
        ("SH-F7", ablations.attack_table),
        ("SH-F7", ablations.losses),
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
        return {f"series.{view}.clients": [0.5, 0.7] for view in ("before", "after")}

    assert len(tables.spreads(prepare(EMPTY, exhibit_id), exhibit_id)) == printed
    runs = [run for d in ("Cora", settings.STANDIN, settings.ARXIV) for run in settings.cell(settings.OURS, d, 20, [0])]
    table = tables.spreads(prepare(frame(runs, extra), exhibit_id), exhibit_id)
    both = table[table.runs.gt(0) & table.published_mean.notna()]
    assert len(table) == printed + 2 and both.dataset.tolist() == [settings.ARXIV]
    assert both.ours_mean.tolist() == pytest.approx([60]) and both.published_mean.tolist() == [71.88]


def test_the_servers_price_is_held_against_no_stand_in() -> None:
    """Published seconds stand beside real graphs; the growth is that of ours and of the printed per cent."""
    rows = [run for run in grids.server() if run.options["of"] == settings.OURS]
    made = frame(rows, lambda run: {"timing.server_seconds": run.clients / 20, "timing.round_seconds": 10.0,
                                    "timing.peak_mebibytes": 100.0})  # fmt: skip
    table = ablations.server_table(prepare(made, "SH-T6"))
    assert table[table.published_seconds.notna()].dataset.unique().tolist() == ["Cora", "Computers"]
    growth = ablations.server_growth(table)
    hundred = growth[growth.clients.eq(100)].set_index("dataset")
    assert hundred.ours.tolist() == pytest.approx([400, 400, 400])
    assert hundred.published.dropna().to_dict() == {"Cora": 4.42, "Computers": 4.42}
    assert growth[growth.runs.eq(0)].published.tolist() == [3, 300, 2500]
    made.loc[made.dataset.eq("Cora") & made.clients.eq(100), "environment"] = "elsewhere"
    table = ablations.server_table(prepare(made, "SH-T6")).set_index(["dataset", "clients"])
    assert pd.isna(table.relative["Cora", 100]) and table.relative.notna().sum() == len(table) - 1


def test_a_choice_is_paired_with_the_cells_without_it() -> None:
    """Each method's runs with the other choice against the same seeds of SH-T1; a run alone has no interval."""
    runs = [run for run in grids.choices() if not (run.method == "Flow" and run.seed > 0)]

    def score(run: Run) -> float:
        return 0.5 + 0.01 * run.seed + 0.1 * ("input_dropout" in run.options) - 0.2 * ("scaled" in run.options)

    table = ablations.choice_table(prepare(frame(runs, scored(score)), "SH-M3"))
    assert len(table) == 12 and table.groupby("choice", sort=False).size().tolist() == [11, 1]
    assert table["so minus SH-T1"].dropna().round(6).value_counts().to_dict() == {10: 10, -20: 1}
    assert table[table.method.eq("Flow")][["low", "runs"]].isna().to_numpy().tolist() == [[True, False]]


def test_what_an_attack_costs_is_paired_and_a_gain_is_none() -> None:
    """Losses of each seed against itself; in the claim neither method is charged for the other's lucky gain."""
    gain = {settings.OURS: (-0.002, 0.003, -0.001), "FED-PUB": (0.05, 0.051, 0.052)}

    def score(run: Run) -> float:
        return 0.5 + 0.1 * run.seed + (gain[run.method][run.seed] if run.options.get("malicious") else 0)

    made = prepare(frame(few(grids.malicious()), scored(score)), "SH-F7")
    table = ablations.attack_table(made)
    costs = table[table["method and attack"].str.startswith("FED-PUB")]["cost"].dropna()
    assert len(costs) == 6 and costs.tolist() == pytest.approx([-5.1] * 6)
    text, verdict = next(c for c in claims.CLAIMS if c.id == "SH-C6").judge(lambda _: made)
    assert verdict == "undecided" and text.startswith("0 shown, 0 contradicted")


def test_statistics_agree_to_the_digit_within_the_range_or_not() -> None:
    """2,485 nodes agree only if they are 2,485; a part's 891 edges lie between 880 and 900; 0.606 is not 0.7."""
    runs = few(grids.statistics(10, 20), 2)

    def extra(run: Run) -> dict[str, Any]:
        part = run.clients > 1
        return {"nodes": 248.5 if part else 2485, "edges": 870 + 30 * run.seed, "classes": 7, "clustering": 0.2381,
                "heterogeneity": 0.7 if part else None}  # fmt: skip

    table = setups.statistics_table(frame(runs, extra), "SH-T7")
    found = table[table.dataset.eq("Cora")].set_index(["clients", "metric"]).agreement
    assert found["", "nodes"] == found["10", "nodes"] == found["", "clustering coefficient"] == "to the digit"
    assert found["10", "edges"] == "within our range" and found["10", "heterogeneity"] == "differs by +15.5%"
    assert found["", "heterogeneity"] == "" and len(table) == 78


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
    made = prepare(
        frame(few(runs), lambda _: {"before.best.test_clients": 0.1, "after.best.test_clients": 0.6}), "SH-T1-lineage"
    )
    table = readings.lineage_table(made, ["Cora", "CiteSeer"])
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
    """Literal runs at the printed number fit all eight cells of a method that the main reading misses by 20 points."""
    paper = pd.concat([tables.printed("SH-T1"), tables.printed("SH-T2")])
    level = {(p.dataset, p.method, p.clients): p.value_number for p in paper.itertuples()}

    def at(shift: float) -> Extra:
        return scored(lambda r: (level[r.dataset, r.method, str(r.clients)] + shift + 0.1 * r.seed) / 100)

    kept = [run for run in few([*TABLE1, *TABLE2]) if run.method in ("pFedGraph", "Flow")]
    shifted = frame([run for run in kept if run.method == "pFedGraph"], at(20.0))
    made = pd.concat([shifted, frame([run for run in kept if run.method == "Flow"], at(0.0))], ignore_index=True)
    main = pd.concat([tables.beside_published(tables.scored(made[made.clients.isin(counts)]), name)
                      for name, counts in claims.TABLES.items()], ignore_index=True)  # fmt: skip
    runs = [run for run in few(GRIDS["SH-T1-literal"].paper()) if run.method in ("pFedGraph", "Flow", "FedProx")]
    table = readings.literal_table(tables.scored(frame(runs, at(0.0))), main)
    found = readings.literal_summary(table).set_index("method")
    assert len(table) == 80 and list(found.index) == ["pFedGraph", "Flow"]
    assert found.loc["pFedGraph"].tolist() == pytest.approx([20.1, 0.1, 0, 8, 8, 8])
    assert found.loc["Flow"].tolist() == pytest.approx([0.1, 0.1, 8, 8, 8, 8])
    copied = table[table.method.eq("FedProx") & table.exhibit.eq("SH-T1")]
    assert set(copied.verdict) == {"not tested"}  # the printed numbers are another work's


def test_fggps_vote_stands_beside_its_classifier() -> None:
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


# -- claims -----------------------------------------------------------------------------------------------------------


def results(better: float) -> Callable[[str], pd.DataFrame]:
    """Every exhibit on Cora and CiteSeer, three seeds, as good or bad for FedSheafHN as `better` points."""

    def score(run: Run) -> float:
        noise = 0.001 * ((7 * run.seed + len(run.method)) % 5)
        ours = run.method == settings.OURS
        worth = {"vectors": 0.4, "diffusion": 0.1, "attention": 0.1, "refresh": 0.1}
        steps = sum(worth[name] for name in worth if name in run.options)
        steps += 0.2 * (run.options.get("local_epochs") == 20)
        drop = float(run.options.get("malicious", 0)) * abs(better) / 100 * (ours != (better > 0))
        overlapping = 0.5 + 0.001 * (run.dataset == "Cora") if run.clients > 20 else 1.0
        return 0.6 + noise + (ours - steps) * better * overlapping / 100 - drop

    def extra(run: Run) -> dict[str, Any]:
        at = score(run)
        ours = (run.method == settings.OURS) == (better > 0)
        spread, late = (0.01, 0) if ours else (0.05, 3)
        spread = 0.03 if run.options.get("vectors") == "one-hot" else spread
        curve = [0.2] * late + [0.7 + 0.001 * run.seed] * (8 - late)
        out = scored(lambda _: at)(run)
        for view in ("before", "after"):
            out |= {f"series.{view}.clients": [at - spread, at, at + spread + 0.001 * run.seed],
                    f"series.{view}.val": curve, f"series.{view}.test_clients": curve}  # fmt: skip
        if run.task == "check":
            out |= {"train_test": 0.7 + 0.001 * run.seed, "new_test": 0.7 + better / 100, "new_alone": 0.7}
            verdict = "holds" if better > 0 else "fails"
            names = {"FedSheafHN-convergence": "SH-Th1", "FedSheafHN-generalization": "SH-Th2"}
            row = {"id": names.get(run.method, "SH-I1"), "statement": "", "measured": 1.0, "bound": 1.0}
            out["checks"] = [{**row, "verdict": verdict}]
        if run.task == "bench":
            more = 1 if better > 0 else 2 if run.clients == 20 else 3
            out |= {"timing.server_seconds": 0.1 * more, "timing.round_seconds": 1.0, "timing.peak_mebibytes": 500.0}
        return out

    def get(name: str) -> pd.DataFrame:
        runs = [run for run in GRIDS[name].paper() if run.seed < 3 and run.dataset in ("Cora", "CiteSeer", "")]
        return prepare(frame(runs, extra), name)

    return get


def two_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """Return the claims of a paper with two graphs."""
    graphs = {settings.DATASETS: ("Cora", "CiteSeer"), settings.ABLATED: ("Cora",)}
    monkeypatch.setattr(claims, "DATASETS", graphs[settings.DATASETS])
    monkeypatch.setattr(claims, "PANELS", {"a": "Cora", "b": "CiteSeer"})
    monkeypatch.setattr(claims, "ABLATED", graphs[settings.ABLATED])

    def fewer(part: Difference | Derived) -> Difference | Derived:
        if isinstance(part, Derived):
            return part
        return replace(part, per={**part.per, "dataset": graphs[tuple(part.per["dataset"])]})

    return [replace(claim, parts=[fewer(part) for part in claim.parts]) for claim in claims.CLAIMS]


@pytest.mark.parametrize(("better", "verdict"), [(10.0, "holds"), (-10.0, "fails")])
def test_claims_come_out_either_way(better: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in which FedSheafHN is far better or far worse in everything decide every claim accordingly."""
    judged = claims_table(two_graphs(monkeypatch), results(better), "fedsheafhn").set_index("id")
    assert judged.verdict.to_dict() == dict.fromkeys(judged.index, verdict)


def test_every_pair_of_a_column_and_a_method_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ahead of all but Flow, which is surely ahead, and FedPer, which is level, it is shown so in 64 of 80 pairs."""

    def extra(run: Run) -> dict[str, Any]:
        worth = {settings.OURS: 0.7, "Flow": 0.8, "FedPer": 0.7 + 0.01 * (run.seed - 1)}.get(run.method, 0.6)
        return dict.fromkeys((f"{view}.best.test_clients" for view in ("before", "after")), worth + 0.0001 * run.seed)

    def get(name: str) -> pd.DataFrame:
        return prepare(frame(few(GRIDS[name].paper()), extra), name)

    two_graphs(monkeypatch)
    found = claims.cell_by_cell(get)
    assert found[1] == "holds" and found[0].startswith("64 shown, 8 contradicted, 8 undecided of 80 pairs")
    assert (
        "Local 8 (8 surely, 0 surely below) of 8" in found[0] and "Flow 0 (0 surely, 8 surely below) of 8" in found[0]
    )
    assert found[0].endswith("in the printed tables it is above in 234 of 236")


def test_the_rival_is_named_on_validation_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedSheafHN is held against the method of best validation, though another one has the best test scores; and most
    columns decide, not all.
    """

    def extra(run: Run) -> dict[str, Any]:
        ours, few_lost = run.method == settings.OURS, run.dataset == "Cora" and run.clients == 10
        test = {settings.OURS: 0.7, "Flow": 0.75 if few_lost else 0.6, "FedPer": 0.9}.get(run.method, 0.5)
        val = {settings.OURS: 0.5, "Flow": 0.8}.get(run.method, 0.7)
        noise = 0.001 * run.seed * ours
        return {f"{view}.best.{on}_clients": value + noise for view in ("before", "after")
                for on, value in (("test", test), ("val", val))}  # fmt: skip

    def get(name: str) -> pd.DataFrame:
        return prepare(frame(few(GRIDS[name].paper()), extra), name)

    found = claims_table(claims.CLAIMS[:1], get, "fedsheafhn").iloc[0]
    assert found.verdict == "holds in part" and "; not compared: PubMed, 10, PubMed, 20" in found.evidence
    found = claims_table(two_graphs(monkeypatch)[:1], get, "fedsheafhn").iloc[0]
    assert found.verdict == "holds" and found.evidence.startswith("7 shown, 1 contradicted, 0 undecided")
    assert "over Flow" in found.evidence and "FedPer" not in found.evidence


def test_one_seed_and_an_empty_store_decide_nothing() -> None:
    """No difference is judged without two seeds, and nothing without a run."""
    empty = claims_table(claims.CLAIMS, lambda name: prepare(EMPTY, name), "fedsheafhn")
    assert set(empty.verdict) == {"cannot be checked here"}
    get = results(10.0)
    one = claims_table(claims.CLAIMS, lambda name: select(get(name), {"seed": 0}), "fedsheafhn")
    decided = set(one[one.verdict != "cannot be checked here"].id)
    graphs = {"SH-C1-graphs", "SH-C1-where"}  # whose units are graphs
    assert decided == {*graphs, "SH-C6-server", "SH-C7"}  # a measured time and a bound need no second seed either


def test_where_fedsheafhn_stands() -> None:
    """Paired with Local and with the method of best validation, on the seeds that both have; its place by test scores;
    graphs, not their columns, are the units of the claims over graphs.
    """
    worth = {settings.OURS: (0.70, 0.6), "Local": (0.68, 0.5), "Flow": (0.71, 0.65), "FedAvg": (0.72, 0.55)}

    def extra(run: Run) -> dict[str, Any]:
        test, val = worth[run.method]
        test -= (0.05 if run.clients < 30 else 0.02) * (run.method == settings.OURS and run.dataset == "CiteSeer")
        noise = 0.001 * run.seed * (run.method == "Local")
        return {f"{view}.best.{on}_clients": value + noise for view in ("before", "after")
                for on, value in (("test", test), ("val", val))}  # fmt: skip

    def get(name: str) -> pd.DataFrame:
        runs = [run for run in few(GRIDS[name].paper()) if run.method in worth]
        return prepare(frame([run for run in runs if (run.method, run.seed) != ("Local", 2)], extra), name)

    table = tables.standing(get("SH-T1")).set_index(["dataset", "clients"])
    assert table.index.tolist() == [(d, n) for d in ("Cora", "CiteSeer") for n in (10, 20)]
    assert table["over Local"].round(6).unique().tolist() == [1.95, -3.05]
    assert table["over rival"].round(6).unique().tolist() == [-1, -6] and set(table.rival) == {"Flow"}
    assert table.place.unique().tolist() == [3, 4] and set(table.methods) == {4}
    middle, half = 1.95, 12.706204736 * 0.1 / 2  # t of two seeds, which lie 0.1 points apart
    ends = table.low["Cora", 10], table.high["Cora", 10]
    assert ends == pytest.approx((middle - half, middle + half))
    found = claims_table(claims.CLAIMS, get, "fedsheafhn").set_index("id")
    text = found.evidence["SH-C1-graphs"]  # of 1.95 and -1.55, by t of two graphs
    assert text.startswith("0 shown, 0 contradicted, 1 undecided: 2 graphs +0.2 [-22.0, +22.4]")
    text = found.evidence["SH-C1-where"]  # of 0 and -3
    assert text.startswith("0 shown, 0 contradicted, 1 undecided: 2 graphs -1.5 [-20.6, +17.6]")


def test_what_a_claim_speaks_of_and_was_not_run_is_named() -> None:
    """Results on Cora and CiteSeer leave Computers and ogbn-arxiv out of every claim that has them."""
    found = claims_table(claims.CLAIMS, results(10.0), "fedsheafhn").set_index("id")
    missing = {name: text.partition("; not compared: ")[2] for name, text in found.evidence.items()}
    for name in ("SH-C2", "SH-C2-sheaf", "SH-C4", "SH-C4-alone", "SH-C5", "SH-C5-most", "SH-C5-networks", "SH-C6"):
        assert missing[name].startswith("Computers, ") and "ogbn-arxiv, " in missing[name], name
        # All that was run of this one is shown, and whole graphs are what is missing.
        expected = "holds on every graph at hand" if name == "SH-C5-networks" else "holds in part"
        assert found.verdict[name] == expected, name


@pytest.mark.parametrize(("seconds", "verdict"), [(1.1, "holds"), (1.3, "fails")])
def test_the_price_of_a_round_is_held_against_the_promise(seconds: float, verdict: str) -> None:
    """Fifty clients on Cora count, fewer do not, and what was not timed is not promised."""
    table = pd.DataFrame({
        "dataset": "Cora", "row": settings.OURS, "clients": [20, 50], "round_seconds": [9.0, seconds],
        "peak_mebibytes": [4096.0, 1024.0],
    })  # fmt: skip
    found = {row["id"]: row["verdict"] for row in ablations.promises(table)}
    assert found == {"SH-T6-a": verdict, "SH-T6-b": "holds", "SH-T6-c": "not measured", "SH-T6-d": "not measured"}
