"""Give stored training runs the paper's names, and compare them with what is printed.

A score is the test accuracy over all test nodes after the last round, in percent (FS-Q10).
Validation chooses no round.
"""

from __future__ import annotations

import pandas as pd

from fedrepro.papers.fedstruct.exhibits.cells import CENTRAL, HOP2VEC
from fedrepro.papers.fedstruct.exhibits.counts import totals
from fedrepro.papers.fedstruct.exhibits.grids import TRAINED, rows_of
from fedrepro.papers.fedstruct.exhibits.readings import MAIN
from fedrepro.papers.fedstruct.exhibits.settings import BEYOND, PARTITIONS
from fedrepro.reporting import frames

# FedPub is personalized, so it is read after local training; every other row is what the server sends.
PERSONAL = "FedPub"
COUNTED = ("FS-T1", "FS-F2", "FS-T9", "FS-F5")
NAN = float("nan")

# --- names -------------------------------------------------------------------------------------------------------


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of an exhibit under the paper's names; checks and attacks stay as they are.

    A training run is repeated for each row of the exhibit that shows it. It gets `method`, the published name of the
    row, `registered`, its method's name in this package, `percent` and `validation`, its accuracies, `structure only`,
    that of FedStruct's structure part by itself, and `propagations`: L_s, or the layers of a GraphSAGE. Counted
    messages get the columns of `totals`.
    """
    if exhibit_id in TRAINED:
        return _named(frame, exhibit_id)
    return totals(frame) if exhibit_id in COUNTED else frame


def _named(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    index = {key: number for number, key in enumerate(frame.get("key", ()))}
    found = [(row, index[key]) for row, key in rows_of(exhibit_id) if key in index]
    names = pd.Series([row for row, _ in found], dtype=object)
    runs = frame.iloc[[number for _, number in found]].reset_index(drop=True).rename(columns={"method": "registered"})

    scores = [f"{view}.last.{kind}" for view in ("before", "after") for kind in ("test", "val")]
    others = ["registered", "stack", "structure_depth", "facts.structure_test"]
    held = runs.reindex(columns=[*scores, *others])  # NaN where no run has it
    personal = names.str.partition(", ")[0].eq(PERSONAL) if len(names) else names.astype(bool)
    test, validation = (
        100 * held[f"before.last.{kind}"].mask(personal, held[f"after.last.{kind}"]).astype(float)
        for kind in ("test", "val")
    )
    layers = held["stack"].map(lambda stack: len(stack) if isinstance(stack, tuple) else NAN)
    ours = held["registered"].astype(str).str.startswith("FedStruct")
    depth = held["structure_depth"].where(ours, layers).astype(float)
    alone = {"structure only": 100 * held["facts.structure_test"].astype(float)}
    return runs.assign(method=names, percent=test, validation=validation, propagations=depth, **alone)


def not_published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of what the paper does not have: Squirrel, and stand-ins."""
    ours = frame[frame["dataset"].eq(BEYOND) | frame["dataset"].astype(str).str.endswith("~standin")]
    return frames.means(ours, ["dataset", "method", "partition", "clients"], "percent")


def runs_per_cell(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how many runs are stored for each row and graph."""
    return frame.pivot_table(
        index="method", columns="dataset", values="seed", aggfunc="count", sort=False, fill_value=0
    )


# --- figures and readings ----------------------------------------------------------------------------------------


def with_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with their share of labelled nodes, `labelled (percent)`, and the figure's `setting`."""
    shares = frame["split"].astype(str).str.split("/").str[0]
    return frame.assign(**{"labelled (percent)": shares.astype(float), "setting": shares + "% labelled"})


def with_structure_only(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Figure 4(b)'s runs with those of Hop2Vec a second time, as the structure part only ("H2V s")."""
    ours = frame[frame["method"].eq(HOP2VEC)]
    ours = ours.assign(method="FedStruct (H2V s)", percent=ours["structure only"])
    return pd.concat([frame, ours], ignore_index=True)


def deep_networks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return last training loss and validation accuracy (percent) of each deep network of FS-F4b-training."""
    columns = ["dataset", "method", "propagations", "dropout", "rounds", "train_loss", "validation"]
    table = frame.reindex(columns=columns).rename(columns={"method": "network", "propagations": "layers"})
    return table.assign(runs=1)


def open_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the validation accuracy of every reading of each open setting of a baseline (FS-M1)."""
    parts = frame["method"].astype(str).str.partition(", ").reindex(columns=range(3))
    named = frame.assign(method=parts[0], reading=parts[2])
    return named[["dataset", "method", "reading", "validation"]].assign(runs=1)


def changes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what each reading changes against the tables on the same seeds, in points (FS-T2-readings)."""
    scores = frame.set_index(["dataset", "seed"])[["method", "percent"]]
    main, others = (scores[scores["method"].eq(MAIN) == usual] for usual in (True, False))
    gaps = others.assign(difference=others["percent"] - main["percent"].reindex(others.index))
    return gaps.groupby(["dataset", "method"], sort=False)["difference"].agg(["mean", "min", "max", "count"])


def mending(frame: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy, and the neighbours that are missing and generated for each node (FS-Q5)."""
    by = ["dataset", "partition", "method"]
    facts = {"generated": "facts.added", "missing": "facts.wanted"}
    counted = frame.assign(**{name: frame.get(fact, NAN) for name, fact in facts.items()})
    return frames.means(frame, by, "percent").merge(frames.means(counted, by, list(facts)).drop(columns="runs"), on=by)


def local_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Central GNN minus Local GNN, paired over seeds, for each graph and partition."""
    rows = []
    for dataset in dict.fromkeys(frame["dataset"]):
        for name in PARTITIONS:
            local = {"dataset": dataset, "method": "Local GNN", "partition": name}
            gap = frames.difference(frame, {"dataset": dataset, "method": CENTRAL}, local, "percent")
            rows.append([dataset, name, gap.difference if gap else NAN, gap.pairs if gap else 0])
    return pd.DataFrame(rows, columns=["dataset", "partition", "gap", "pairs"])
