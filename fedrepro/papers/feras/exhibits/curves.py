"""Feras: scores over epochs, how soon they are reached, and panels to draw them in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedrepro.papers.feras.exhibits.tables import FERAS, METHODS
from fedrepro.reporting import compare

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LATE = 50  # "between epoch 50 and 400": where the paper compares values of q


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run and scored epoch: the columns of `named`, `epoch`, `F1-micro` and `validation` (means over hosts
    of the scores on test and on validation nodes).
    """
    import pandas as pd

    from fedrepro.runs.store import opened

    store, parts = opened(), []
    for run in frame.to_dict("records"):
        series = (store.get(run["key"]) or {}).get("series") or {}
        scores = series.get("before.test_clients") or []
        known = series.get("before.val_clients") or [math.nan] * len(scores)
        each = int(run.get("local_epochs") or 1)
        kept = {name: run[name] for name in ("dataset", "method", "row", "sampler", "kappa", "hosts", "seed")}
        kept |= {"q": run.get("q")}
        parts += [
            {**kept, "epoch": each * place, "F1-micro": score, "validation": val}
            for place, (score, val) in enumerate(zip(scores, known, strict=True), start=1)
        ]
    names = ["dataset", "method", "row", "sampler", "kappa", "hosts", "seed", "q", "epoch", "F1-micro", "validation"]
    return pd.DataFrame(parts, columns=names)


def epochs_saved(points: pd.DataFrame) -> pd.DataFrame:
    """How many epochs earlier Feras reaches the best validation score of a run of another method than that run itself.

    Runs are paired by graph, kappa, hosts and seed. `target` is the highest validation score of the other run over the
    scored epochs, `other` the first of these at which it has it, `feras` the first at which Feras has it or more, and
    `saved` the difference. A tie saves nothing (scores are taken once in a few epochs). Where Feras never reaches the
    target `feras` is missing and `saved` is minus all of its epochs, which is less than for any run that reaches it.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    keys = ["dataset", "kappa", "hosts", "seed"]
    for key, cell in points.dropna(subset="validation").groupby(keys, sort=False):
        runs = {name: group.set_index("epoch")["validation"] for name, group in cell.groupby("method")}
        for over in METHODS[:2]:
            if FERAS not in runs or over not in runs:
                continue
            mine, other = runs[FERAS], runs[over]
            target, reached = other.max(), mine.index[mine >= other.max()]
            row = dict(zip(keys, key)) | {"over": over, "target": target, "other": other.index[other == target].min()}
            first = reached.min() if len(reached) else math.nan
            rows.append(row | {"feras": first, "saved": row["other"] - first if len(reached) else -mine.index.max()})
    return pd.DataFrame(rows, columns=[*keys, "over", "target", "other", "feras", "saved"])


def speed(points: pd.DataFrame) -> pd.DataFrame:
    """Means of `epochs_saved` over seeds, how many runs never reach the target, and the paces of both methods."""
    by = ["dataset", "kappa", "hosts"]
    saved = epochs_saved(points).groupby([*by, "over"], sort=False)
    found = saved[["other", "feras", "saved"]].mean()
    found = found.assign(**{"never reached": saved["feras"].apply(lambda f: int(f.isna().sum())), "runs": saved.size()})
    each = pace(points).groupby([*by, "method"], sort=False)["pace"].mean()
    found = found.reset_index()
    for name, methods in (("pace", found["over"]), ("pace of Feras", [FERAS] * len(found))):
        keys = zip(*(found[column] for column in by), methods, strict=True)
        found[name] = [each.get(key, math.nan) for key in keys]
    return found


def pace(points: pd.DataFrame) -> pd.DataFrame:
    """The shape of each run's curve: its mean score over the first half of the epochs, as a share of its highest score.

    For information: it is 1 for a curve that never rises, and falls where the same curve goes on to a higher plateau,
    so it does not say which of two methods is faster.
    """
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

    from fedrepro.reporting import figures

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
