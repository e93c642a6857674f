"""FedStruct's tables in the paper's layout: ours above what is printed, with verdict marks and numbers of runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedrepro.errors import one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FILLS = {"reproduced": "#D5EDE0", "differs": "#FADCC8", "undecided": "#EDEDED", "not comparable": "white"}
SHOWN = {"louvain": "Louvain", "random": "random", "kmeans": "K-means"}


def layout(judged: pd.DataFrame, across: str = "partition") -> pd.DataFrame:
    """A table as the paper prints it: one row a method, columns (dataset, `across`), cells such as
    `79.2 ± 0.4 (3) = | 79.27 ± 0.90`: ours with its number of runs and verdict mark, then what is printed.

    Args:
        judged: as `fedstruct.judged` returns it.
        across: `partition` or `clients`. A central row stands in a data set's first column alone.
    """
    import pandas as pd

    from fedrepro.reporting.figures import MARKS

    cells: dict[tuple[str, str], dict[str, str]] = {}
    for column, method, row in _places(judged, across):
        runs = int(row["runs"])
        spread = "" if math.isnan(row["ours_sd"]) else f" ± {row['ours_sd']:.1f}"
        ours = f"{row['ours_mean']:.1f}{spread} ({runs}) {MARKS[row['verdict']]}" if runs else "not run"
        cells.setdefault(column, {})[method] = f"{ours} | {row['published']}"
    methods = list(dict.fromkeys(judged["method"]))
    table = pd.DataFrame(cells, index=pd.Index(methods, name="method")).fillna("")
    table.columns = pd.MultiIndex.from_tuples(table.columns, names=["dataset", across])
    return table


def drawn(judged: pd.DataFrame, title: str, across: str = "partition") -> Figure:
    """Return the table as a figure, three data sets a block: ours and its mark, below it the printed mean and our runs.

    Args:
        judged, across: as in `layout`.
    """
    import matplotlib.pyplot as plt

    from fedrepro.reporting import figures

    datasets, methods = list(dict.fromkeys(judged["dataset"])), list(dict.fromkeys(judged["method"]))
    blocks = [datasets[start : start + 3] for start in range(0, len(datasets), 3)]
    columns: dict[str, list[str]] = {name: [] for name in datasets}
    places = list(_places(judged, across))
    for (dataset, inner), *_ in places:
        columns[dataset] += [inner] * (inner not in columns[dataset])
    with plt.style.context(["default", figures.STYLE], after_reset=True):
        widest = max(sum(len(columns[name]) for name in block) for block in blocks)
        size = (2.2 + 0.82 * widest, len(blocks) * (0.8 + 0.36 * len(methods)))
        figure, axes = plt.subplots(len(blocks), 1, figsize=size, squeeze=False)
        for ax, block in zip(axes[:, 0], blocks):
            order = [(name, inner) for name in block for inner in columns[name]]
            _block(ax, [place for place in places if place[0] in order], order, methods)
        marks = "   ".join(f"{mark} {name}" for name, mark in figures.MARKS.items())
        figure.suptitle(f"{title}\nours and verdict; below it the printed mean and our number of runs.   {marks}",
                        fontsize=9)  # fmt: skip
        plt.close(figure)
    return figure


def _places(judged: pd.DataFrame, across: str) -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
    """((dataset, column), method, row) of every cell."""
    one_of("across", across, ("partition", "clients"))
    central = judged["partition"] == "single"
    first = {name: group[across].iloc[0] for name, group in judged[~central].groupby("dataset", sort=False)}
    out = []
    for row, alone in zip(judged.to_dict("records"), central):
        inner = first[row["dataset"]] if alone else row[across]
        out.append(((row["dataset"], SHOWN.get(inner, f"{inner} clients")), row["method"], row))
    return out


def _block(ax: Any, places: list[Any], order: list[tuple[str, str]], methods: list[str]) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    from fedrepro.reporting.figures import MARKS

    boxes, fills = [], []
    for column, method, row in places:
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
