"""Feras: scores over epochs, how fast they rise, and panels to draw them in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedrepro import compare

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LATE = 50  # "between epoch 50 and 400": where the paper compares values of q


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run and scored epoch: the columns of `named`, `epoch` and `F1-micro` (mean over hosts)."""
    import pandas as pd

    from fedrepro.store import opened

    store, parts = opened(), []
    for run in frame.to_dict("records"):
        series = (store.get(run["key"]) or {}).get("series") or {}
        scores = series.get("before.test_clients") or []
        each = int(run.get("local_epochs") or 1)
        kept = {name: run[name] for name in ("dataset", "method", "row", "sampler", "kappa", "hosts", "seed")}
        kept |= {"q": run.get("q")}
        parts += [{**kept, "epoch": each * (place + 1), "F1-micro": score} for place, score in enumerate(scores)]
    names = ["dataset", "method", "row", "sampler", "kappa", "hosts", "seed", "q", "epoch", "F1-micro"]
    return pd.DataFrame(parts, columns=names)


def pace(points: pd.DataFrame) -> pd.DataFrame:
    """How fast each run learns: its mean score over the first half of the epochs, as a share of its highest score."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    keys = ["dataset", "method", "sampler", "kappa", "hosts", "q", "seed"]
    for key, group in points.groupby(keys, sort=False, dropna=False):
        early = group[group["epoch"] <= group["epoch"].max() / 2]
        rows.append(dict(zip(keys, key)) | {"pace": float(early["F1-micro"].mean() / group["F1-micro"].max())})
    return pd.DataFrame(rows, columns=[*keys, "pace"])


def late_scores(points: pd.DataFrame) -> pd.DataFrame:
    """FR-X1: mean score from epoch 50 on (of the last half, where there are fewer) for every graph and q, and what q
    costs against q = 1 on the same seeds, with its interval.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for dataset, group in points.groupby("dataset", sort=False):
        start = min(LATE, group["epoch"].max() / 2)
        late = group[group["epoch"].gt(start) & group["epoch"].mod(5 if start == LATE else 1).eq(0)]
        wide = late.pivot_table(index="seed", columns="q", values="F1-micro")
        first = wide[1] if 1 in wide else wide.iloc[:, 0] * math.nan
        for q, scores in wide.items():
            found = compare.common(scores, first) if q != 1 else None
            low, high = (found.low, found.high) if found else (math.nan, math.nan)
            rows.append({
                "dataset": dataset, "q": int(q), "F1-micro": scores.mean(), "runs": scores.count(),
                "minus q=1": (scores - first).mean(), "low": low, "high": high,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["dataset", "q", "F1-micro", "runs", "minus q=1", "low", "high"])


def panels(
    frame: pd.DataFrame, key: Sequence[str], x: str, y: str, by: str, title: str, form: str = "curves", wide: int = 3
) -> Figure | None:  # fmt: skip
    """`figures.curves` or `bars` of `y` against `x`, one panel for each combination of `key`; equal legends once."""
    import matplotlib.pyplot as plt

    from fedrepro import figures

    groups = list(frame.groupby(list(key), sort=False))
    if not groups:
        return None
    wide = min(wide, len(groups))
    rows = -(-len(groups) // wide)
    size = ((4.2 if form == "curves" else 9.0) * wide, 3.3 * rows)
    with plt.style.context(["default", figures.STYLE], after_reset=True):
        figure, axes = plt.subplots(rows, wide, figsize=size, squeeze=False)
        told: set[tuple[str, ...]] = set()
        for ax, (name, group) in zip(axes.flat, groups):
            text = ", ".join(str(v) if isinstance(v, str) else f"{k} = {v}" for k, v in zip(key, name))
            getattr(figures, form)(group, x, y, by, axes=ax, title=text)
            legend = ax.get_legend()
            if legend is not None:  # one per set of lines
                lines = tuple(text.get_text() for text in legend.get_texts())
                if lines in told:
                    legend.remove()
                told.add(lines)
        for ax in axes.flat[len(groups) :]:
            ax.set_axis_off()
        figure.suptitle(title, fontsize=10)
    plt.close(figure)
    return figure
