"""The picture of Theorem 4.6 on random graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import pandas as pd

from fedrepro.reporting.style import COLOURS, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def radii(record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the spectral radii of one record of `feras-looser`, one row for each host's sub-graph.

    Returns:
        Columns `features` (nonnegative or signed), `without` and `with` sharing, and `tighter`, whether sharing made
        the constraint tighter.
    """
    parts = [
        pd.DataFrame({"features": kind} | {name: record[f"theorem46.{kind}.{name}"] for name in ("without", "with")})
        for kind in KINDS
    ]
    trials = pd.concat(parts, ignore_index=True)
    return trials.assign(tighter=trials["with"] > trials["without"] * (1 + 1e-12))


KINDS = ("nonnegative", "signed")
RADIUS = r"$\rho(M M^\top)$"


def radii_figure(trials: pd.DataFrame) -> Figure:
    """Draw the radius with sharing over that without it, one panel for each kind of features."""
    counts = trials.groupby(["features", "tighter"], sort=False)["with"].transform("count").astype(str)
    trials = trials.assign(constraint=trials["tighter"].map({False: "not tighter: ", True: "tighter: "}) + counts)
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
        for ax, (kind, group) in zip(axes, trials.groupby("features", sort=False)):
            for name, part in group.groupby("constraint"):
                colour = COLOURS[int(name.startswith("tighter"))]
                ax.scatter(part["without"], part["with"], s=6, linewidth=0, color=colour, label=name, rasterized=True)
            ends = [group["without"].min(), group["without"].max()]
            ax.plot(ends, ends, color="#999999", linewidth=1)
            ax.set(xscale="log", yscale="log", title=kind, xlabel=f"{RADIUS} without sharing")
            ax.set_ylabel(f"{RADIUS} with sharing")
            ax.legend(title="with sharing, the constraint is")
        figure.suptitle("FR-Th4: spectral radius with and without shared embeddings", fontsize=10)
        plt.close(figure)
    return figure
