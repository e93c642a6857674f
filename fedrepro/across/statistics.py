"""Compare methods: paired differences with intervals first, then ranks, and what the differences depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare, studentized_range

from fedrepro.across import protocol, tables
from fedrepro.across.protocol import FINE_TUNED
from fedrepro.errors import require
from fedrepro.reporting import frames, statistics
from fedrepro.reporting.style import style

LEVEL = 0.05
BASES = ("Local", "FedAvg")
HOMOPHILY = 0.5  # share of edges within a class from which a graph counts as homophilic
SHOWN, NOT_SHOWN = "shown", "not shown"
DRAWS = 2000  # in the simulation of power


def differences(table: pd.DataFrame, value: str = "accuracy", bases: Sequence[str] = BASES) -> pd.DataFrame:
    """Return each row minus each base in each column, paired over seeds.

    Args:
        table: as `tables.scored` gives it.

    Returns:
        Columns column, row, base, difference, low, high (95% interval), pairs and verdict. The verdict is "above" or
        "below" if the interval leaves out zero and Benjamini and Hochberg's procedure over all rows keeps it, else
        "not shown".
    """
    rows: list[tuple[Any, ...]] = []
    for label, part in table.groupby("column", sort=False):
        for base in bases:
            same_runs = FINE_TUNED if base == "FedAvg" else base  # the row of the same runs is no rival
            names = [name for name in tables.order(list(part["row"])) if name != same_runs]
            leads = frames.leads(part, base, names, value, "row")
            rows += [(label, name, base, *lead) for name, lead in leads.items()]
    gaps = pd.DataFrame(rows, columns=["column", "row", "base", *statistics.Paired._fields])
    kept = statistics.discoveries(gaps.pop("p").tolist(), LEVEL)
    sides = np.select([gaps["low"] > 0, gaps["high"] < 0], ["above", "below"], NOT_SHOWN)
    return gaps.assign(verdict=np.where(kept, sides, NOT_SHOWN))


class Ranks(NamedTuple):
    """Mean ranks of methods over graphs, 1 for the best, Friedman's p-value, the critical difference, and the power.

    `power` maps an advantage, in standard deviations of a method's scores over graphs, to the chance that one method
    with this advantage is told from the middle of the others. `left_out` names the methods that lack runs on a graph.
    """

    mean: pd.Series
    graphs: int
    p: float
    critical: float
    power: dict[float, float]
    left_out: Sequence[str] = ()

    @property
    def reach(self) -> float:
        """Return how many ranks a method that is always first lies before the others, if their mean ranks are equal."""
        return len(self.mean) / 2


def ranks(table: pd.DataFrame) -> Ranks | None:
    """Rank the methods that have runs on every graph, on METIS parts with 10 clients; None below two graphs.

    A graph is one block, since runs on one graph are no independent repetitions. The critical difference is Nemenyi's,
    q_0.05 sqrt(k (k + 1) / (6 N)) for k methods and N graphs (Demsar 2006).
    """
    labels = {protocol.Column(graph, protocol.METIS).label for graph in protocol.SEEDS}
    held = table[table["column"].isin(labels) & ~table["row"].isin(["Central", FINE_TUNED])]
    means = held.pivot_table(index="column", columns="row", values="accuracy").dropna(axis=1)
    graphs, count = means.shape
    if graphs < 2 or count < 3:
        return None
    rank = means.rank(axis=1, ascending=False)
    p = float(friedmanchisquare(*(means[name] for name in means)).pvalue)
    critical = critical_difference(count, graphs)
    chances = {a: power(count, graphs, a) for a in (1.0, 2.0, 3.0)}
    left_out = tables.order([name for name in table["row"] if name not in (*means, "Central", FINE_TUNED)])
    return Ranks(rank.mean().sort_values(), graphs, p, critical, chances, left_out)


def critical_difference(methods: int, graphs: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the level 0.05."""
    quantile = float(studentized_range.ppf(1 - LEVEL, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * graphs))


def power(methods: int, graphs: int, advantage: float) -> float:
    """Return how often a method with an advantage is told from a method in the middle, by simulation.

    Scores are normal with standard deviation 1 over graphs, and all methods but one have the same mean.
    """
    require(methods >= 3 and graphs >= 2, "methods, graphs", "at least 3 and 2", (methods, graphs))
    scores = np.random.default_rng(0).normal(size=(DRAWS, graphs, methods))
    scores[:, :, 0] += advantage
    mean = (methods - scores.argsort(2).argsort(2)).mean(1)
    others = np.median(mean[:, 1:], axis=1)
    return float((others - mean[:, 0] > critical_difference(methods, graphs)).mean())


def diagram(ranking: Ranks) -> Figure:
    """Draw mean ranks on a line, with a bar over methods that the critical difference does not tell apart."""
    names, mean_ranks = list(ranking.mean.index), ranking.mean.to_numpy()
    with style():
        figure, axes = plt.subplots(figsize=(9, 0.24 * len(names) + 1.4))
        axes.scatter(mean_ranks, np.zeros(len(mean_ranks)), color="black", zorder=3, s=18)
        for depth, (name, rank) in enumerate(zip(names, mean_ranks, strict=True), start=1):
            axes.plot([rank, rank, len(names) + 0.3], [0, -depth, -depth], color="0.6", linewidth=0.8)
            axes.text(len(names) + 0.4, -depth, f"{name}  {rank:.1f}", va="center", fontsize=8)
        level, last = 0.0, -1
        for start, rank in enumerate(mean_ranks):
            end = int(np.flatnonzero(mean_ranks - rank <= ranking.critical).max())
            if end > last and end > start:
                level, last = level + 0.6, end
                axes.plot([rank, mean_ranks[end]], [level, level], color="black", linewidth=3, solid_capstyle="butt")
        axes.plot([1, 1 + ranking.critical], [level + 1.2] * 2, color="black", marker="|")
        axes.text(1, level + 1.5, f"critical difference {ranking.critical:.1f}", fontsize=8)
        axes.set(xlim=(0.5, len(names) + 5), ylim=(-len(names) - 1, level + 2.6), yticks=[])
        axes.set_title("bars join methods that the critical difference does not tell apart")
        axes.spines["left"].set_visible(False)
        axes.set_xticks(range(1, len(names) + 1))
        axes.set_xlabel(f"mean rank over {ranking.graphs} graphs (METIS, 10 clients), 1 for the best")
        plt.close(figure)
    return figure


def dependence(table: pd.DataFrame, homophily: dict[str, float]) -> pd.DataFrame:
    """Return how a method's lead over Local changes with the kind of graph, and with the partition.

    For each method: its lead on homophilic graphs minus that on the others (METIS, 10 clients), and on each graph its
    lead under METIS minus that at random. Each graph counts as much as any other, and the first effect is named after
    its graphs. The intervals have only the variance over seeds (Welch), so they speak of these graphs and not of graphs
    in general.

    Args:
        homophily: share of edges within a class by graph.
    """
    leads = _leads(table)
    rows = []
    for name, part in leads.groupby("row", sort=False):
        metis = part[part["partition"] == protocol.METIS]
        graphs = {graph: on["lead"] for graph, on in metis.groupby("dataset", sort=False) if len(on) > 1}
        high = {graph: lead for graph, lead in graphs.items() if homophily.get(graph, math.nan) >= HOMOPHILY}
        low = {graph: lead for graph, lead in graphs.items() if homophily.get(graph, math.nan) < HOMOPHILY}
        rows.append((name, f"{', '.join(high)} minus {', '.join(low)}", *_welch([*high.values()], [*low.values()])))
        for dataset, on in part.groupby("dataset", sort=False):
            by = [[on[on["partition"] == kind]["lead"]] for kind in (protocol.METIS, protocol.RANDOM)]
            rows.append((name, f"{dataset}: METIS minus random", *_welch(*by)))
    effects = pd.DataFrame(rows, columns=["row", "effect", "difference", "low", "high", "p"]).dropna()
    keep = statistics.discoveries(effects["p"].tolist(), LEVEL)
    return effects.assign(verdict=[SHOWN if kept else NOT_SHOWN for kept in keep]).drop(columns="p")


def _leads(table: pd.DataFrame) -> pd.DataFrame:
    """Return the lead of each row over Local, seed by seed, with 10 clients and the main split."""
    held = table[(table["clients"] == protocol.CLIENTS) & (table["split"] == protocol.MAIN)]
    leads = tables.over_base(held, "Local", ["column", "seed"])
    return leads[~leads["row"].isin(["Local", "Central"])].dropna(subset=["lead"])


def _welch(left: Sequence[pd.Series], right: Sequence[pd.Series]) -> tuple[float, float, float, float]:
    """Return the mean of group means on the left minus that on the right, its 95% interval and its p-value.

    A mean of G group means has the variance sum_g s_g^2 / (n_g G^2), and the degrees of freedom are Satterthwaite's.
    All are NaN if a side has no group, or a group fewer than two values. `scipy.stats.ttest_ind` has one group a side,
    so that it cannot give the mean of several graphs; a test compares it with this function for one group.
    """
    if not (left and right) or min(map(len, [*left, *right])) < 2:
        return (math.nan,) * 4
    sides = [(group, len(side)) for side in (left, right) for group in side]
    parts = np.array([group.var(ddof=1) / (len(group) * count**2) for group, count in sides])
    free = np.array([len(group) - 1 for group, _ in sides])
    gap = float(np.mean([group.mean() for group in left]) - np.mean([group.mean() for group in right]))
    variance = float(parts.sum())
    if variance == 0:
        return gap, gap, gap, 0.0 if gap else 1.0
    freedom = variance**2 / float((parts**2 / free).sum())
    half = statistics.quantile(1 - LEVEL / 2, freedom) * math.sqrt(variance)
    return gap, gap - half, gap + half, 2 * statistics.tail(abs(gap), math.sqrt(variance), freedom)
