"""FedStruct's tables: stored training runs under the paper's names, next to what is printed.

A score is the test accuracy over all test nodes after the last round, in percent (FS-Q10): validation chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from fedrepro.errors import one_of
from fedrepro.papers.fedstruct.exhibits.cells import CENTRAL, HOP2VEC
from fedrepro.papers.fedstruct.exhibits.counts import totals
from fedrepro.papers.fedstruct.exhibits.grids import TRAINED, rows_of
from fedrepro.papers.fedstruct.exhibits.printed import ACCURACY
from fedrepro.papers.fedstruct.exhibits.readings import MAIN
from fedrepro.papers.fedstruct.exhibits.settings import BEYOND
from fedrepro.reporting import compare, frames, rule
from fedrepro.reporting.exhibits import published
from fedrepro.reporting.layout import MARKS
from fedrepro.reporting.style import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = ["dataset", "method", "clients", "partition"]
# FedPub is personalized, so it is read after local training; every other row is what the server sends.
PERSONAL = "FedPub"
COUNTED = ("FS-T1", "FS-F2", "FS-T9", "FS-F5")
FILLS = dict(zip(rule.WORDS, ("#D5EDE0", "#DCEBF7", "#EDEDED", "#FBEBC8", "#FADCC8", "white"), strict=True))
SHOWN = {"louvain": "Louvain", "random": "random", "kmeans": "K-means"}
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

    def column(name: str) -> pd.Series:
        return runs[name] if name in runs else pd.Series(NAN, index=runs.index)

    personal = names.str.partition(", ")[0].eq(PERSONAL) if len(names) else names.astype(bool)
    scores = {
        column_: 100 * column(f"before.last.{kind}").mask(personal, column(f"after.last.{kind}")).astype(float)
        for column_, kind in (("percent", "test"), ("validation", "val"))
    }
    layers = column("stack").map(lambda stack: len(stack) if isinstance(stack, tuple) else NAN)
    depth = (
        column("structure_depth")
        .where(column("registered").astype(str).str.startswith("FedStruct"), layers)
        .astype(float)
    )
    alone = 100 * column("facts.structure_test").astype(float)
    return runs.assign(method=names, **scores, propagations=depth, **{"structure only": alone})


def published_beside(frame: pd.DataFrame, exhibit_id: str, on: Sequence[str] = CELL) -> pd.DataFrame:
    """Return every published accuracy of an exhibit with our runs and the verdict."""
    printed = published("fedstruct")
    asked = printed["exhibit"].eq(exhibit_id) & printed["metric"].eq(ACCURACY)
    return compare.table(frame, printed[asked], on=on, value="percent")


def not_published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of what the paper does not have: Squirrel, and stand-ins."""
    ours = frame[frame["dataset"].eq(BEYOND) | frame["dataset"].astype(str).str.endswith("~standin")]
    return frames.means(ours, ["dataset", "method", "partition", "clients"], "percent")


def runs_per_cell(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how many runs are stored for each row and graph."""
    return frame.pivot_table(
        index="method", columns="dataset", values="seed", aggfunc="count", sort=False, fill_value=0
    )


# --- Tables 2, 6, 7 and 8 ----------------------------------------------------------------------------------------


def layout(judged: pd.DataFrame, across: str = "partition") -> pd.DataFrame:
    """Return a table as the paper prints it, with cells such as `79.2 ± 0.4 (3) = | 79.27 ± 0.90`.

    A cell holds our mean and spread, the number of our runs, the mark of the verdict, and what is printed.

    Args:
        judged: as `published_beside` returns it.
        across: `partition` or `clients`. A central row stands in the first column of a data set only.
    """
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for column, method, row in places(judged, across):
        spread = "" if pd.isna(row["ours_sd"]) else f" ± {row['ours_sd']:.1f}"
        ours = f"{row['ours_mean']:.1f}{spread} ({row['runs']}) {MARKS[row['verdict']]}" if row["runs"] else "not run"
        cells.setdefault(column, {})[method] = f"{ours} | {row['published']}"
    methods = pd.Index(dict.fromkeys(judged["method"]), name="method")
    table = pd.DataFrame(cells, index=methods).fillna("")
    table.columns = pd.MultiIndex.from_tuples(table.columns, names=["dataset", across])
    return table


def places(judged: pd.DataFrame, across: str) -> Iterator[tuple[tuple[str, str], str, dict[str, Any]]]:
    """Yield column (data set, and partition or clients), method and row of every cell of a table."""
    one_of("across", across, ("partition", "clients"))
    central = judged["partition"].eq("single")
    first = judged[~central].groupby("dataset", sort=False)[across].first()
    for row, whole in zip(judged.to_dict("records"), central):
        inner = first[row["dataset"]] if whole else row[across]
        yield (row["dataset"], SHOWN.get(inner, f"{inner} clients")), row["method"], row


def drawn(judged: pd.DataFrame, title: str, across: str = "partition") -> Figure:
    """Return the table as a figure, three data sets a block: ours with its mark, and the printed mean below it.

    Args:
        judged, across: as in `layout`.
    """
    datasets, methods = list(dict.fromkeys(judged["dataset"])), list(dict.fromkeys(judged["method"]))
    blocks = [datasets[start : start + 3] for start in range(0, len(datasets), 3)]
    cells = list(places(judged, across))
    columns = {
        name: list(dict.fromkeys(inner for (dataset, inner), *_ in cells if dataset == name)) for name in datasets
    }
    with style():
        widest = max(sum(len(columns[name]) for name in block) for block in blocks)
        size = (2.2 + 0.82 * widest, len(blocks) * (0.8 + 0.36 * len(methods)))
        figure, axes = plt.subplots(len(blocks), 1, figsize=size, squeeze=False)
        for ax, block in zip(axes[:, 0], blocks):
            order = [(name, inner) for name in block for inner in columns[name]]
            _block(ax, [cell for cell in cells if cell[0] in order], order, methods)
        marks = "   ".join(f"{mark} {name}" for name, mark in MARKS.items())
        told = "ours and verdict; below it the printed mean and our number of runs."
        figure.suptitle(f"{title}\n{told}\n{marks}", fontsize=9)
        plt.close(figure)
    return figure


def _block(ax: Axes, cells: list[Any], order: list[tuple[str, str]], methods: list[str]) -> None:
    boxes, fills = [], []
    for column, method, row in cells:
        x, y = order.index(column), methods.index(method)
        boxes.append(Rectangle((x, y), 1, 1))
        fills.append(FILLS[row["verdict"]])
        ours = f"{row['ours_mean']:.1f} {MARKS[row['verdict']]}" if row["runs"] else "not run"
        lines = ((0.36, ours, 7.5, "black"), (0.74, f"{row['published_mean']:.2f} · {row['runs']}", 6, "#666666"))
        for below, text, size, colour in lines:
            # Out of the layout: hundreds of texts inside the axes would be measured again and again.
            ax.text(x + 0.5, y + below, text, ha="center", va="center", fontsize=size, color=colour, in_layout=False)
    ax.add_collection(PatchCollection(boxes, facecolor=fills, edgecolor="#DDDDDD", linewidth=0.5))
    ax.set(xlim=(0, len(order)), ylim=(len(methods), 0))
    ax.set_xticks([x + 0.5 for x in range(len(order))], [f"{name}\n{inner}" for name, inner in order], fontsize=7)
    ax.set_yticks([y + 0.5 for y in range(len(methods))], methods, fontsize=7.5)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for name in ("left", "bottom"):
        ax.spines[name].set_visible(False)


# --- figures and readings ----------------------------------------------------------------------------------------


def with_labels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with their share of labelled nodes, `labelled (percent)`, and the figure's `setting`."""
    shares = frame["split"].astype(str).str.split("/").str[0]
    return frame.assign(**{"labelled (percent)": shares.astype(float), "setting": shares + "% labelled"})


def with_structure_only(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Figure 4(b)'s runs with those of Hop2Vec a second time, as the structure part by itself ("H2V s")."""
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
        for name in SHOWN:
            local = {"dataset": dataset, "method": "Local GNN", "partition": name}
            gap = frames.difference(frame, {"dataset": dataset, "method": CENTRAL}, local, "percent")
            rows.append([dataset, name, gap.difference if gap else NAN, gap.pairs if gap else 0])
    return pd.DataFrame(rows, columns=["dataset", "partition", "gap", "pairs"])
