"""Table 2 under two main readings of the layer, each in two views, side by side (FR-Q6, FR-Q12).

The *symmetric* layer is that of the paper's theory. *GraphSAINT's* has a weight for a node itself and one for its
neighbours, and is the layer of the code that the experiments are said to use. A host is scored on *all* test nodes, as
in the main tables, or only on the *visible* ones, whose features it has. Records hold the scores on visible and on
unseen test nodes at the last round, so the second view is that of the last round, and so is the score next to it.
"""

from __future__ import annotations

import math

import pandas as pd

from fedrepro.papers.feras.exhibits.grids import METHODS, REAL
from fedrepro.papers.feras.exhibits.tables import CELL, SCORE, paired_gains
from fedrepro.reporting import frames

LAYERS = ("symmetric", "GraphSAINT's")
ALL, VISIBLE = "all test nodes", "visible, last round"
VIEWS = {
    ALL: SCORE,
    "all, last round": "before.last.test_clients",
    VISIBLE: "facts.test_seen",
    "unseen, last round": "facts.test_unseen",
}
SEEDS = range(3)


def both_layers(main: pd.DataFrame, saint: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of Table 2 with the random walk under both layers, with `layer` and a column for each view.

    Args:
        main: the runs of FR-T2, of which the graphs and seeds of FR-T2-saint are kept.
        saint: the runs of FR-T2-saint.
    """
    graphs = [name for name in REAL[:3] if name in set(main["dataset"])] or list(dict.fromkeys(main["dataset"]))
    main = frames.select(main, {"sampler": "rw", "dataset": graphs, "seed": list(SEEDS)})
    parts = [part.assign(layer=layer) for layer, part in zip(LAYERS, (main, saint), strict=True)]
    frame = pd.concat(parts, ignore_index=True)
    views = {name: frame[column].astype(float) if column in frame else math.nan for name, column in VIEWS.items()}
    return frame.assign(**views)


def on_common_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs on the seeds that all stored methods of a cell and layer have, so that their means compare."""
    by = [*CELL, "layer"]
    methods = frame.groupby(by)["method"].transform("nunique")
    return frame[frame.groupby([*by, "seed"])["method"].transform("nunique").eq(methods)]


def layer_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean F1-micro of each cell, layer and method in every view on common seeds, and their number."""
    return frames.means(on_common_seeds(frame), [*CELL, "layer", "method"], list(VIEWS))


def layer_gains(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the gains of sharing under both layers, on all test nodes and on visible ones, in points.

    A gain is paired over seeds and has its 95% interval; `runs` is the number of pairs.
    """
    keys = [*CELL, "layer"]
    points = frame.assign(**{view: 100 * frame[view] for view in (ALL, VISIBLE)})
    names = {view: {"mean": view, "low": f"{view}, low", "high": f"{view}, high"} for view in (ALL, VISIBLE)}
    every, seen = (paired_gains(points, keys, view).rename(columns=columns) for view, columns in names.items())
    return every.drop(columns="runs").merge(seen, on=[*keys, "gain"])


def order_of(frame: pd.DataFrame, view: str = ALL) -> pd.DataFrame:
    """Return for each cell and layer the methods from the best to the worst mean score in a view on common seeds."""
    groups = on_common_seeds(frame).groupby([*CELL, "layer", "method"], sort=False)
    means = groups[view].mean().unstack("method").reindex(columns=METHODS)
    order = [" > ".join(row.dropna().sort_values(ascending=False).index) for _, row in means.iterrows()]
    return means.assign(order=order).reset_index()[[*CELL, "layer", "order"]].rename_axis(columns=None)
