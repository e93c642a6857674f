"""Find nodes with the same neighbours, and score methods on test nodes with and without such a twin (AX-14).

Platonov et al. (2023, arXiv:2302.11640) report that the graphs Chameleon and Squirrel hold duplicated pages. Here a
twin of a node is another node with the same neighbours, at least `LEAST` of them, in the undirected graph without
self-loops. A test node with a twin among the training nodes can be labelled by a copy of that twin's label, so that a
high score may tell more of the copies than of a method.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from torch_geometric.data import Data

from fedrepro.across import protocol, tables
from fedrepro.data import partition
from fedrepro.reporting import frames, statistics, style
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

LEAST = 2  # neighbours: nodes that hang on one common neighbour are many in every graph, and are no copies
WITH, WITHOUT = "with a training twin", "without a training twin"
LEVEL = 0.05
NO_GAP = (math.nan,) * len(statistics.Paired._fields)
SHARES = ("twins", "same_label", "chance", "covered", "same_client", "copied")


def groups(data: Data) -> npt.NDArray[np.int64]:
    """Return for each node the number of its set of neighbours, `[nodes]`; -1 for fewer than `LEAST` neighbours."""
    count = data.num_nodes
    row, col = data.edge_index.numpy()
    pairs = np.unique((row * count + col)[row != col])
    degree = np.bincount(pairs // count, minlength=count)
    neighbours = np.split(pairs % count, np.cumsum(degree)[:-1])
    numbers: dict[bytes, int] = {}
    group_of = [numbers.setdefault(n.tobytes(), len(numbers)) if len(n) >= LEAST else -1 for n in neighbours]
    return np.array(group_of, dtype=np.int64)


def count(run: Run) -> dict[str, Any]:
    """Count the twins of a run's graph, split and partition.

    Returns:
        The result has shares, NaN where the whole is empty. `twins`: nodes with a twin, of all nodes. `same_label`:
        pairs of twins with one label, of all pairs of twins. `chance`: the same for pairs drawn at random. `covered`:
        test nodes with a twin among the training nodes, of all test nodes. `same_client`: of these, those that have
        such a twin at their own client. `copied`: of these, those whose label is the most frequent one of their
        training twins, and of equals the first. The series hold `nodes`, the numbers of the covered test nodes.
    """
    data = tasks.graph(run)
    label, group, classes = data.y.numpy(), groups(data), int(data.num_classes)
    client = np.zeros(data.num_nodes, dtype=np.int64)
    for number, part in enumerate(partition.divide(data, run.partition, run.clients, run.seed)):
        client[part.numpy()] = number
    grouped = np.flatnonzero(group >= 0)
    by_label = _table(group[grouped], label[grouped], classes)
    size = by_label.sum(1)
    train = grouped[data.train_mask.numpy()[grouped]]
    votes = _table(group[train], label[train], classes, len(size))
    near = _table(group[train], client[train], run.clients, len(size))
    test = np.flatnonzero(data.test_mask.numpy() & (group >= 0))
    covered = test[votes[group[test]].sum(1) > 0]
    every = np.bincount(label, minlength=classes)
    result = {
        "twins": _share(size[size > 1].sum(), data.num_nodes),
        "same_label": _share(_pairs(by_label).sum(), _pairs(size).sum()),
        "chance": _share(_pairs(every).sum(), _pairs(every.sum())),
        "covered": _share(len(covered), data.test_mask.sum()),
        "same_client": _share((near[group[covered], client[covered]] > 0).sum(), len(covered)),
        "copied": _share((votes[group[covered]].argmax(1) == label[covered]).sum(), len(covered)),
    }
    return {"result": result, "series": {"nodes": covered.tolist()}}


def _table(rows: Any, columns: Any, width: int, height: int = 0) -> npt.NDArray[np.int64]:
    """Count how often each pair of a row and a column occurs."""
    height = height or int(rows.max(initial=-1)) + 1
    return np.bincount(rows * width + columns, minlength=height * width).reshape(height, width)


def _pairs(sizes: Any) -> Any:
    return sizes * (sizes - 1) // 2


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if whole else float("nan")


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean shares of `count` over seeds, in percent, for each graph, partition and split."""
    held = frame[frame["task"] == "check"] if len(frame) else pd.DataFrame(columns=["dataset", "partition", "split"])
    held = held.reindex(columns=["dataset", "partition", "split", *SHARES])
    return 100 * held.groupby(["dataset", "partition", "split"], sort=False)[list(SHARES)].mean()


def scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy in percent of every training run on test nodes with a training twin, and on the others.

    The predictions are those at the round of best validation accuracy, in the view that the protocol scores.

    Returns:
        Columns column, row, seed, nodes (`WITH` or `WITHOUT`), test nodes (their number) and accuracy. A central run
        stands in every column of its graph.
    """
    names = ["dataset", "column", "row", "seed", "nodes", "test nodes", "accuracy"]
    runs = frame.to_dict("records")
    twins = {_place(run): set(run["series.nodes"]) for run in runs if run["task"] == "check"}
    rows = []
    for run in runs:
        if run["task"] != "train" or _place(run) not in twins:
            continue
        name = tables.name_of(run["method"])
        kept = run["series.predictions"]["test"]
        right = np.equal(kept.get(protocol.view(name), kept["before"]), kept["label"])
        covered = np.isin(kept["node"], list(twins[_place(run)]))
        label = protocol.Column(run["dataset"], run["partition"], run["clients"], run["split"]).label
        for nodes, chosen in ((WITH, covered), (WITHOUT, ~covered)):
            accuracy = 100 * _share(right[chosen].sum(), chosen.sum())
            rows.append((run["dataset"], label, name, run["seed"], nodes, int(chosen.sum()), accuracy))
    table = pd.DataFrame(rows, columns=names)
    return tables.with_central(table, ["dataset"], ["column"]).drop(columns="dataset")


def _place(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["dataset"], run["split"], run["seed"]


def leads(table: pd.DataFrame, base: str = "Local") -> pd.DataFrame:
    """Return, for each column and row, the accuracy on both kinds of nodes, and the lead over a base on each.

    Args:
        table: as `scores` gives it.

    Returns:
        Columns column, row, nodes, accuracy (mean over seeds), difference, low, high (95% interval of the paired
        difference to the base, NaN for the base itself) and pairs. Both rows of a method also have `gap`, its lead on
        nodes with a twin less that on the others, paired over seeds, with `gap low`, `gap high` and `gap p`,
        and `larger`: the nodes on which the lead is shown to be larger, where Benjamini and Hochberg's procedure over
        all gaps keeps this one, else nothing.
    """
    rows = []
    for (label, nodes), part in table.groupby(["column", "nodes"], sort=False):
        names = tables.order(list(part["row"]))
        gaps, means = frames.leads(part, base, names, "accuracy", "row"), part.groupby("row")["accuracy"].mean()
        rows += [(label, name, nodes, means[name], *gaps.get(name, NO_GAP)) for name in names]
    table_of_leads = pd.DataFrame(rows, columns=["column", "row", "nodes", "accuracy", *statistics.Paired._fields])
    return table_of_leads.drop(columns="p").merge(_gaps(table, base), on=["column", "row"], how="left")


def _gaps(table: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return for each column and row the lead over a base on nodes with a twin less that on the others."""
    leads_ = tables.over_base(table, base, ["column", "nodes", "seed"])
    rows = []
    for (label, name), part in leads_[leads_["row"] != base].groupby(["column", "row"], sort=False):
        gap = frames.difference(part, {"nodes": WITH}, {"nodes": WITHOUT}, "lead")
        if gap is not None:
            rows.append((label, name, gap.difference, gap.low, gap.high, gap.p))
    gaps = pd.DataFrame(rows, columns=["column", "row", "gap", "gap low", "gap high", "gap p"])
    kept = statistics.discoveries(gaps["gap p"].tolist(), LEVEL)
    sides = [(WITH if gap > 0 else WITHOUT) if keep else "" for gap, keep in zip(gaps["gap"], kept, strict=True)]
    return gaps.assign(larger=sides)


def draw(table: pd.DataFrame) -> Figure | None:
    """Draw the mean accuracies of `leads`, one panel a column and one point a kind of nodes; None without any."""
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(table["column"]))
    if not labels:
        return None
    with style.style():
        size = (1.5 + 2.4 * len(labels), 3.0)
        figure, panels = plt.subplots(1, len(labels), figsize=size, sharex=True, sharey=True, squeeze=False)
        for axes, label in zip(panels[0], labels, strict=True):
            part = table[table["column"] == label]
            wide = part.pivot(index="row", columns="nodes", values="accuracy").reindex(tables.order(list(part["row"])))
            places = range(len(wide))
            axes.hlines(places, wide.min(axis=1), wide.max(axis=1), color="lightgray", zorder=1)
            for nodes, marker in ((WITH, "o"), (WITHOUT, "s")):
                axes.scatter(wide[nodes], places, marker=marker, label=nodes, zorder=2)
            axes.set(title=tables.spoken(label), xlabel="accuracy, %", yticks=places, yticklabels=wide.index)
        panels[0][0].invert_yaxis()  # the panels share it
        figure.legend(
            *panels[0][0].get_legend_handles_labels(), title="test nodes", loc="outside lower center", ncols=2
        )
        plt.close(figure)
    return figure
