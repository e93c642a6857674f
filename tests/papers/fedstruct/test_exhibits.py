"""FedStruct's exhibits: settings follow the paper's table, rows are named, claims can come out either way."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from fedstruct_frames import runs_of, stored

from fedrepro import paths
from fedrepro.engine.method import Method
from fedrepro.papers.fedstruct.exhibits import cells, checks, counts, grids, printed, readings, settings, tables
from fedrepro.papers.fedstruct.exhibits.settings import SETTINGS, method_of
from fedrepro.reporting import compare, exhibits
from fedrepro.reporting.exhibits import registered
from fedrepro.runs.store import Store

TABLES = ("FS-T2", "FS-T6", "FS-T7", "FS-T8")
OURS = {name: exhibit for name, exhibit in registered().items() if exhibit.paper == "fedstruct"}


def from_the_store(exhibit: str) -> pd.DataFrame:
    frame = Store(paths.root() / "data" / "results").frame(OURS[exhibit].runs("paper"))
    return tables.prepare(frame, exhibit)


# --- grids -------------------------------------------------------------------------------------------------------


def test_every_listed_exhibit_has_a_grid() -> None:
    """The 40 IDs of the list are exhibits here, those beyond it are named by a table or a question."""
    listed = {row["id"] for row in exhibits.listed("fedstruct") if row["kind"] != exhibits.OURS}
    assert len(listed) == 40 and listed <= set(OURS) == set(grids.GRIDS)
    beyond = {
        "FS-M1",
        "FS-F4b-training",
        "FS-T2-readings",
        "FS-T6-readings",
        "FS-T8-readings",
        "FS-Q5",
        "FS-I5-graphs",
        "FS-Q18-edges",
        "FS-Q18-labels",
    }
    assert set(OURS) - listed == beyond


@pytest.mark.parametrize("exhibit", OURS)
def test_profiles_are_parts_of_the_grid(exhibit: str) -> None:
    """Quick runs are some of the paper's; smoke runs are on stand-ins, have two rounds, all rows and all readings."""
    paper, quick, smoke = (OURS[exhibit].runs(profile) for profile in exhibits.PROFILES[::-1])
    assert set(quick) <= set(paper) and 0 < len(smoke) <= 26
    assert all(run.dataset == "" or run.dataset.endswith("~standin") for run in smoke)
    assert all(run.options["rounds"] == 2 and run.clients <= 5 for run in smoke if run.task == "train")
    if exhibit in grids.TRAINED:
        rows = {row for row, _ in grids.TRAINED[exhibit].cells()}
        frame = pd.DataFrame([{"key": run.key, "method": run.method} for run in smoke])
        slack = {row for row in rows if row.endswith(readings.SLACK)}  # one reading, which smoke tries on some row
        kept = set(tables.prepare(frame, exhibit)["method"])
        assert rows - slack <= kept <= rows and bool(slack) == bool(slack & kept)


def test_runs_of_more_seeds_are_named_too() -> None:
    """With `seeds=3` a smoke run of seed 2 has its row; a tuning run keeps the seed that no table shows."""
    frame = pd.DataFrame([{"key": run.key, "seed": run.seed} for run in OURS["FS-T2"].runs("smoke", 3)])
    assert set(tables.prepare(frame.assign(method=""), "FS-T2")["seed"]) == {0, 1, 2}
    for name in grids.UNSEEDED:
        assert {run.seed for run in OURS[name].runs("paper", 3)} == {cells.OPEN_SEED}


def test_quick_has_what_the_notebooks_promise() -> None:
    """Tables have small graphs and one seed, Figures 4(a) to (c) both ends of the axis, and no run a large graph."""
    for name in TABLES:
        assert {run.dataset for run in OURS[name].runs("quick")} <= {"Cora", "Chameleon"}
        assert {run.seed for run in OURS[name].runs("quick")} == {0}
    assert {run.split for run in OURS["FS-F4a"].runs("quick")} == {cells.labelled(5), cells.labelled(50)}
    assert {run.clients for run in OURS["FS-F4c"].runs("quick")} == {5, 50}
    assert {len(run.options["stack"]) for run in OURS["FS-F4b"].runs("quick") if run.method == "Central"} == {2, 20}
    for name in ("FS-F4d", "FS-F6", "FS-X2", *grids.UNSEEDED):
        assert OURS[name].runs("quick") == []
    sources = [run for name in ("FS-T2", "FS-T6", "FS-T8", "FS-F4a", "FS-F4b") for run in OURS[name].runs("quick")]
    assert set(OURS["FS-X1"].runs("quick")) < set(sources)


# --- settings and rows -------------------------------------------------------------------------------------------


def test_settings_are_those_of_the_paper() -> None:
    """Rate, decay, epochs, depths and hidden widths are the ones Table 5 prints."""
    frame = pd.DataFrame([{"dataset": name, "features": 20, "classes": 4} for name in SETTINGS])
    table = counts.compare_settings(frame)
    inner = table["setting"].str.startswith("layers")
    assert len(table) == 60 and set(table.loc[~inner, "state"]) == {"agrees"}
    for row in table[inner].itertuples():
        ours, theirs = (
            [int(width) for width in text.strip("[]").split(",")[1:-1]] for text in (row.ours, row.published)
        )
        assert ours == theirs


@pytest.mark.parametrize("exhibit", TABLES)
def test_tables_have_every_published_row(exhibit: str) -> None:
    """Each printed cell has ten runs under its method, graph, partition and number of clients."""
    table = exhibits.published("fedstruct")
    table = table[table["exhibit"].eq(exhibit) & table["metric"].eq(printed.ACCURACY)]
    runs: dict[tuple[str, str, str, str], int] = {}
    for row, run in grids.TRAINED[exhibit].cells():
        key = (run.dataset, row, str(run.clients), run.partition)
        runs[key] = runs.get(key, 0) + 1
    keys = list(table[["dataset", "method", "clients", "partition"]].itertuples(index=False, name=None))
    assert keys and all(runs[key] == cells.SEEDS for key in keys)


def test_louvain_never_divides_an_incomplete_graph() -> None:
    """Its communities depend on the missing edges. Random and K-means parts do not."""
    parts = {run.partition for _, run in cells.table(cells.T6) if run.dataset.endswith("~incomplete")}
    assert parts == {"single", "random", "kmeans"}


@pytest.mark.parametrize("row", sorted({*cells.T2, *cells.T6, *cells.T7, *cells.T8}))
def test_rows_are_methods_with_options_they_know(row: str) -> None:
    """Every row builds its method and model from its options, on every graph."""
    from fedrepro.runs import tasks

    for dataset in SETTINGS:
        ((_, run),) = cells.cell(row, dataset, "random", 1)
        method, loop = tasks.method(run, features=20, classes=4)
        assert isinstance(method, Method)
        assert loop["rounds"] == method_of(row, dataset)[1]["rounds"] > 1


def test_table8_without_the_graph_is_table6() -> None:
    """DGCN+H2V of FS-T8 and H2V of FS-T6 are the same runs (FS-Q2)."""
    t6 = {run for row, run in cells.table(cells.T6) if row == "FedStruct (H2V)"}
    t8 = {run for row, run in cells.table(cells.T8) if row == "FedStruct (DGCN+H2V)"}
    assert t6 == t8


def test_a_run_of_two_rows_stands_in_both() -> None:
    """A run that two rows show stands in both under the row's name, whatever its method is registered as."""
    frame = stored("FS-T8", {})
    assert set(frame["method"]) == set(cells.T8) and set(frame["registered"]) == {"Central", "FedStruct"}
    twice = stored("FS-T2-readings", {}).query("dataset == 'Cora' and seed == 0")
    assert set(twice["method"]) == {*readings.READINGS, readings.CODE_NAME}


@pytest.mark.parametrize("exhibit", grids.TRAINED)
def test_nothing_stored_gives_an_empty_frame(exhibit: str) -> None:
    """An exhibit without runs has the columns of its names and scores, and no row."""
    for frame in (pd.DataFrame(), runs_of(exhibit, {}, 1).iloc[:0]):
        empty = tables.prepare(frame, exhibit)
        assert empty.empty and {"method", "percent", "validation", "propagations"} <= set(empty)


def test_fedpub_is_read_after_local_training() -> None:
    """FedPub's number is that of personalized weights, all others' that of the server's."""
    frame = runs_of("FS-T2", {}).assign(**{"after.last.test": 0.9, "before.last.test": 0.1})
    ours = tables.prepare(frame, "FS-T2").groupby("method")["percent"].first()
    assert ours["FedPub"] == 90 and (ours.drop("FedPub") == 10).all()


def test_propagations_are_those_of_the_row() -> None:
    """The runs of FS-F4b have every depth of the figure, as L_s for FedStruct and as layers for GraphSAGE."""
    ours = stored("FS-F4b", {}, seeds=1)
    for name in ("FedStruct (H2V)", "Central GNN"):
        assert set(ours[ours["method"] == name]["propagations"]) == set(map(float, cells.DEPTHS))


def test_readings_change_what_they_name_and_nothing_else() -> None:
    """Compared with the row of the tables a run of FS-T2-readings differs in its reading's options only."""
    for row, run in readings.readings():
        usual = method_of("FedStruct (H2V)", run.dataset)[1]
        changed = {name: value for name, value in run.options.items() if usual.get(name) != value}
        assert changed == readings.READINGS.get(row, readings.CODE.get(run.dataset))


def test_open_settings_are_those_validation_chose() -> None:
    """`method_of` uses the one of each pair of readings whose stored runs have the higher mean validation accuracy."""
    means = tables.open_settings(from_the_store("FS-M1")).groupby("reading")["validation"].agg(["mean", "count"])
    for rows, pair in ((one["rows"], one["readings"]) for one in settings.TABLES["open"]):
        best = max(pair, key=lambda reading: means["mean"][reading])
        assert {means["count"][reading] for reading in pair} == {2 * len(rows)}
        for row in rows:
            assert pair[best].items() <= method_of(row, "Cora")[1].items()


def test_what_is_said_of_deep_networks_is_what_was_measured() -> None:
    """Two layers learn Cora's training nodes; 20 linear ones, which see no neighbour, end like 20 of GraphSAGE."""
    table = tables.deep_networks(from_the_store("FS-F4b-training")).query("rounds == 40")
    table = table.set_index(["network", "layers", "dropout"])
    sees, blind = readings.DEEP
    for dropout in (0.7, 0.0):
        assert table.loc[(sees, 2, dropout), "train_loss"] < 0.1
        deep = table.loc[[(sees, 20, dropout), (blind, 20, dropout)]]
        assert (deep["train_loss"] > 1.7).all() and deep["validation"].nunique() == 1


# --- the paper against itself ------------------------------------------------------------------------------------


def test_prose_is_compared_with_the_tables() -> None:
    """Two of the text's 28 numbers agree with the tables, 16.94 and 0.07; the first gain there is 43.70 (FS-Q1)."""
    table = printed.prose_against_tables()
    assert len(table) == 28
    agreeing = table[table["state"] == "agrees"]["prose"].tolist()
    assert agreeing == [16.94, 0.07]
    gains = table[table["setting"].eq("Section 6")]["tables"]
    assert gains.head(4).round(2).tolist() == [43.70, 8.62, 16.94, 5.46]


def test_prose_is_compared_with_runs() -> None:
    """A gap of the text has our gap over the seeds of both rows next to it, and a best depth has none (FS-X1)."""
    table = printed.prose_against_runs(stored("FS-X1", {"Central GNN": 0.8, "FedStruct (H2V)": 0.7}))
    gaps = table[table["method"].str.contains(" - ") & table["runs"].gt(0) & table["method"].str.startswith("Central")]
    assert set(gaps["runs"]) == {3} and gaps["ours"].between(9, 31).all()
    assert table.loc[table["setting"].str.startswith("best depth"), "runs"].eq(0).all()
    assert printed.prose_against_runs(pd.DataFrame())["runs"].eq(0).all()


def test_sentences_are_compared_with_the_tables() -> None:
    """Named cells of Tables 2 and 6 and of Figure 6 contradict sentences of the text (FS-Q19)."""
    contradicted = printed.claims_against_tables()
    cells = contradicted[["dataset", "partition", "clients", "left", "right"]].itertuples(index=False, name=None)
    ours, sgd = "FedStruct (H2V)", "FedSGD GNN"
    assert set(cells) >= {
        ("Photo", "random", "5", ours, sgd),
        ("PubMed", "random", "5", ours, sgd),
        ("Cora", "louvain", "10", ours, "FedStruct (Deg)"),
        ("CiteSeer", "random", "10", ours, "FedGCN-2hop"),
        ("Cora", "random", "20", "FedPub", sgd),
        ("CiteSeer", "random", "20", "FedPub", sgd),
        ("Photo", "kmeans", "", "FedStruct (DGCN+H2V)", "Central GNN"),
        ("Photo", "kmeans", "", "FedStruct (GNN+H2V)", "FedStruct (DGCN+H2V)"),
        ("PubMed", "", "10", "gap, random", "gap, kmeans"),
    }
    assert set(contradicted.loc[contradicted["setting"].ne(""), "difference"]) == {83 - 87, 91 - 94}
    assert (contradicted["difference"].abs() <= 16.01).all()


def test_only_what_the_paper_says_is_compared() -> None:
    """The paper says of the random partition only that FedStruct improves on FedSGD GNN (Section 6)."""
    contradicted = printed.claims_against_tables()
    against = contradicted[
        contradicted["left"].eq("FedStruct (H2V)") & contradicted["right"].isin(["FedSGD GNN", "FedSage+"])
    ]
    assert set(against["partition"]) == {"random"} and "Cora" not in set(against["dataset"])
    assert not contradicted["claim"].str.contains("FedSage+ is similar", regex=False).any()


# --- checks and tables -------------------------------------------------------------------------------------------


def test_checks_tell_identities_from_controls() -> None:
    """The worst run decides an identity; a control that passes is reported."""
    frame = pd.DataFrame({"prop2": [1e-16, 1e-15], "prop2_control": [0.2, 0.1]})
    rows = checks.rows(frame, "FS-Th2")
    assert rows["id"].tolist() == ["FS-Th2", "FS-Th2-control"]
    assert rows["verdict"].tolist() == ["holds", "fails, as it must"] and rows["measured"].tolist() == [1e-15, 0.1]
    frame = pd.DataFrame({"prop2": [1e-16, 0.1], "prop2_control": [0.2, 1e-16]})
    assert checks.rows(frame, "FS-Th2")["verdict"].tolist() == ["fails", "passes, as it must not"]
    assert checks.rows(frame.iloc[:0], "FS-Th2").empty


def test_a_run_without_a_number_passes_no_check() -> None:
    """NaN fails a check and misses a control; of FS-A3 the runs of a budget that no client can follow are left out."""
    for value, ids in ((math.nan, ["prop2", "prop2_control"]), (None, ["prop2", "prop2_control"])):
        frame = pd.DataFrame([{"prop2": 1e-16, "prop2_control": 0.2}, dict.fromkeys(ids, value)])
        assert checks.rows(frame, "FS-Th2")["verdict"].tolist() == ["fails", "passes, as it must not"]
    for errors in ([0.1, math.nan], [math.nan, 0.1], [math.nan, math.nan]):  # NaN is worse than any number
        assert checks.rows(pd.DataFrame({"prop2": errors}), "FS-Th2")["measured"].isna().tolist() == [True]
    blocks = {"budget": "blocks", "difference": 0.0, "difference_control": 0.1}
    matrix = {"budget": "matrix", "difference": None, "difference_control": None}
    assert checks.rows(pd.DataFrame([blocks, matrix]), "FS-A3")["verdict"].tolist() == ["holds", "fails, as it must"]
    lost = pd.DataFrame([blocks, {**blocks, "difference": math.nan}])
    assert checks.rows(lost, "FS-A3")["verdict"].tolist()[0] == "fails"


def test_the_condition_on_derivatives_is_counted() -> None:
    """By hand for Cora: g has 257 256 + 257 7 weights, and Eq. 48 gives 7 times as many equations a labelled node."""
    collusion = pd.DataFrame({"client_1": ["all but one", "one"], "derivatives": [0.5, 9.0]})
    assert checks.derivatives_check(collusion)["verdict"] == "holds"
    assert checks.derivatives_check(collusion.assign(derivatives=[1.5, 0.0]))["verdict"] == "fails"
    assert checks.derivatives_check(collusion.assign(derivatives=[math.nan, 0.0]))["verdict"] == "fails"


def test_a_standin_is_never_compared() -> None:
    """Runs on a stand-in are shown next to the printed number as not tested, and are listed apart."""
    frame = stored("FS-T2", {})
    ours = frame[frame["dataset"] == "Amazon Ratings~standin"]
    numbers = exhibits.published("fedstruct")
    numbers = numbers[numbers["exhibit"].eq("FS-T2") & numbers["metric"].eq(printed.ACCURACY)]
    on = ("dataset", "method", "clients", "partition")
    assert set(compare.judge_table(ours, numbers, on=on, value="percent")["verdict"]) == {"not tested"}
    assert set(tables.not_published(ours)["dataset"]) == {"Amazon Ratings~standin"}


def test_deviations_cover_the_open_decisions() -> None:
    """Each row explains a decision, and those taken in the text of the settings are among them."""
    rows = exhibits.deviations("fedstruct")
    asked = {"FS-Q4", "FS-Q6", "FS-Q9", "FS-Q10", "FS-Q12", "FS-Q14", "FS-Q17", "FS-Q18", "FS-LEDGER", "FS-DENSE"}
    assert asked <= set(rows["id"])
