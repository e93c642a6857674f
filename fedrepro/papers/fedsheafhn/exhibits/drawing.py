"""Give a method one colour in all of FedSheafHN's figures, and mark stand-ins in their labels."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fedrepro.data.shapes import whole
from fedrepro.papers.fedsheafhn.exhibits.settings import DRAWN, METHODS, OURS, VARIANTS
from fedrepro.reporting import figures

# The argument `order` of all figures that draw methods. There are eight colours, which repeat after eight
# methods. The variants of Algorithm 1 have those of FedAvg and FedPer, which no figure draws together with them.
COLOURED = (OURS, *(name for name in DRAWN if name != OURS), "", "", *VARIANTS)


def name_stand_ins(rows: pd.DataFrame, runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return rows whose `dataset` says in words that a graph is a stand-in, such as "ogbn-arxiv, stand-in (5 rounds)".

    Args:
        rows: the rows to draw, with a column `dataset`.
        runs: the runs behind it, which say how many rounds a stand-in had; without them this is not told.
    """
    names = {}
    for name in rows["dataset"].dropna().unique():
        if name.endswith("~standin"):
            counts = [] if runs is None else sorted(set(runs.loc[runs["dataset"].eq(name), "rounds"].astype(int)))
            told = f" ({'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} rounds)" if counts else ""
            names[name] = f"{whole(name)}, stand-in{told}"
    return rows.assign(dataset=rows["dataset"].replace(names))


def convergence(points: pd.DataFrame, exhibit_id: str) -> Figure | None:
    """Draw accuracy in percent against the round, in one panel for each method with the other ten in grey.

    Args:
        points: one row for each run and round, as `tables.rounds_of` returns them, of one graph.
        exhibit_id: such as SH-F4a.

    Returns:
        None if there is no row.
    """
    graphs = ", ".join(name_stand_ins(points)["dataset"].unique())
    title = f"{exhibit_id}: federated test accuracy after local training on {graphs}, mean over the runs stored"
    order = (*COLOURED, *(name for name in METHODS if name not in COLOURED))
    return figures.apart(points, "round", "test", "method", order=order, title=title, ylabel="test (percent)")
