"""FedStruct's readings: listed, computed as they say, and put into the right rows of the main tables."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.papers.fedstruct.exhibits import by_reading, grids, readings, tables
from fedrepro.papers.fedstruct.exhibits.settings import method_of
from fedrepro.reporting import compare, exhibits
from fedrepro.reporting import readings as listing
from fedrepro.reporting.exhibits import registered
from fedrepro.runs import tasks
from fedrepro.runs.store import Store


def frame_of(exhibit: str) -> pd.DataFrame:
    """The exhibit's frame as if each of its runs had come out as 40% before local training, and as 60% after it.

    At the round of best validation accuracy it is 50% and 70%.
    """
    rows = []
    for run in registered()[exhibit].runs("paper"):
        fields = {name: value for name, value in run.to_dict().items() if name != "options"}
        scores = {"before.last.test": 0.4, "after.last.test": 0.6, "before.best.test": 0.5, "after.best.test": 0.7}
        rows.append({"key": run.key, **fields, **run.options, "status": "ok", **scores})
    return tables.prepare(pd.DataFrame(rows), exhibit)


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: frame_of(name) for name in {name for names in by_reading.SOURCES.values() for name in names}}


@pytest.mark.parametrize("exhibit", by_reading.SOURCES)
def test_the_list_is_what_is_run(exhibit: str, frames: dict[str, pd.DataFrame]) -> None:
    """`readings.csv` lists the readings that have runs in a printed cell, and no other; each says when it was fixed."""
    known = listing.listed("fedstruct", exhibit).set_index("reading")
    printed = exhibits.published("fedstruct")
    printed = printed[printed["exhibit"].eq(exhibit)]
    named = by_reading.split_by_reading({name: frames[name] for name in by_reading.SOURCES[exhibit]}, exhibit)
    in_cells = [
        name
        for name, runs in named.items()
        if compare.judge_table(runs, printed, on=["dataset", "clients", "partition", "method"], value="percent")[
            "runs"
        ].any()
    ]
    assert {*in_cells, listing.MAIN} == set(known.index)
    layout = exhibits.study("fedstruct").tables[exhibit]
    main = next(iter(named.values())).iloc[:0]
    judged = listing.table(main, named, printed, layout)  # accepts no reading that is not listed
    assert set(judged["reading"]) == {*in_cells}
    assert set(known["fixed"]) <= {"before", "after"} and known["departures"].str.len().gt(10).all()


def test_the_codes_fedgcn_stands_in_every_column(frames: dict[str, pd.DataFrame]) -> None:
    """The public code trains FedGCN with 10 clients whatever the column: Table 2's others repeat its runs."""
    named = by_reading.split_by_reading({"FS-T6-readings": frames["FS-T6-readings"]}, "FS-T2")[readings.CODE_FEDGCN]
    cora = named[named["dataset"].eq("Cora") & named["partition"].eq("random") & named["method"].eq("FedGCN-2hop")]
    assert cora.groupby("clients").size().to_dict() == {5: 3, 10: 3, 20: 3}
    elsewhere = by_reading.split_by_reading({"FS-T6-readings": frames["FS-T6-readings"]}, "FS-T6")[readings.CODE_FEDGCN]
    assert set(elsewhere["clients"]) == {10}


@pytest.mark.parametrize("exhibit", ["FS-T2", "FS-T6"])
def test_the_point_of_the_round_at_which_a_reading_scores(exhibit: str, frames: dict[str, pd.DataFrame]) -> None:
    """FedAvg and the code's FedGCN are scored after local training and FedPub before it; the tables do the opposite."""
    named = by_reading.split_by_reading({name: frames[name] for name in by_reading.SOURCES[exhibit]}, exhibit)
    scores = {
        name: (set(runs["method"].str.partition(" ")[0].str.partition("-")[0]), set(runs["percent"].round(6)))
        for name, runs in named.items()
        if name in (readings.AFTER, readings.FEDGCN_AFTER, readings.BEFORE, readings.CODE_FEDGCN)
    }
    averaged = {readings.AFTER: ({"FedAvg"}, {60.0})} if exhibit == "FS-T6" else {}
    assert scores == averaged | {
        readings.FEDGCN_AFTER: ({"FedGCN"}, {60.0}),
        readings.BEFORE: ({"FedPub"}, {40.0}),
        readings.CODE_FEDGCN: ({"FedGCN"}, {40.0}),
    }
    main = frames[exhibit].set_index("method")["percent"].round(6)
    assert set(main["FedPub"]) == {60.0} and set(main["FedSGD GNN"]) == {40.0}


def test_the_best_round_is_that_of_each_tables_own_runs(frames: dict[str, pd.DataFrame]) -> None:
    """All rows of a table are scored at the best round, FedPub's after local training as in the table."""
    for exhibit, sources in by_reading.SOURCES.items():
        best = by_reading.split_by_reading({name: frames[name] for name in sources}, exhibit)[readings.BEST]
        assert len(best) == len(frames[exhibit])
        personal = best["method"].eq(tables.PERSONAL)
        assert set(best["percent"][~personal].round(6)) == {50.0}
        assert set(best["percent"][personal].round(6)) == ({70.0} if exhibit in ("FS-T2", "FS-T6") else set())


def test_slack_stands_under_its_partition(frames: dict[str, pd.DataFrame]) -> None:
    """Parts with the code's slack are compared with the printed cells of their partition, random ones have none."""
    slack = by_reading.split_by_reading({"FS-T6-readings": frames["FS-T6-readings"]}, "FS-T6")[readings.SLACK]
    assert set(slack["partition"]) == {"louvain", "kmeans"}
    specs = {cell.run.partition for cell in readings.further() if cell.row.endswith(readings.SLACK)}
    assert specs == set(readings.PARTS.values())


def test_a_reading_changes_what_it_names() -> None:
    """A run as coded has the row's options but for those of its reading, and builds its method."""
    for row, run in [*readings.coded(), *readings.further()]:
        name, _, reading = row.partition(", ")
        made, _ = tasks.method(run, features=20, classes=4)
        assert made is not None
        if reading in readings.CODED:
            usual = method_of(name, run.dataset)[1]
            changes = {"prune": None, "graph": None, **readings.CODED[reading][1]}
            kept = {option: value for option, value in usual.items() if option not in changes}
            assert run.options == {**kept, **{o: v for o, v in changes.items() if v is not None}}


def test_nothing_stored_gives_no_reading() -> None:
    """A fresh clone has no reading, and no error."""
    empty = {name: tables.prepare(pd.DataFrame(), name) for name in by_reading.SOURCES["FS-T8"]}
    assert by_reading.split_by_reading(empty, "FS-T8") == {}


def test_quick_runs_no_reading_of_a_large_graph() -> None:
    """The readings of a quick run are on Cora under the random partition."""
    for name in ("FS-T6-readings", "FS-T8-readings"):
        quick = grids.GRIDS[name].runs("quick")
        assert quick and {(run.dataset, run.partition, run.seed) for run in quick} == {("Cora", "random", 0)}


def test_what_the_deviations_say_of_validation_is_stored() -> None:
    """The public code's readings are better on validation nodes in each row on Cora and Chameleon (FS-R1, FS-R2)."""
    frame = Store(paths.root() / "data" / "results").frame(registered()["FS-M1"].runs("paper"))
    tried = tables.open_settings(tables.prepare(frame, "FS-M1"))
    scores = tried.set_index(["method", "dataset", "reading"])["validation"]
    for reading in (readings.NO_RELU, readings.RAW_ORBITS):
        for row in readings.CODED[reading][0]:
            for dataset in ("Cora", "Chameleon"):
                assert scores[row, dataset, reading] > scores[row, dataset, readings.MAIN]
