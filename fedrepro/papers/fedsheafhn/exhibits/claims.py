"""The headline claims of FedSheafHN as data.

One seed decides nothing, except where graphs are the units (SH-C1-graphs, SH-C1-where). The claim on what is added
counts messages and parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product
from typing import Any

import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits import settings
from fedrepro.papers.fedsheafhn.exhibits.ablations import SERVER_SECONDS, attack_cost, new_clients, server_runs
from fedrepro.papers.fedsheafhn.exhibits.settings import ABLATED, DATASETS, OTHERS, OURS
from fedrepro.papers.fedsheafhn.exhibits.tables import (
    CELL,
    SHEAF,
    over_clients,
    printed,
    rank_against_rivals,
    rival_of,
    rounds_of,
)
from fedrepro.reporting import checks, claims, frames
from fedrepro.reporting.claims import Difference, Get, Parts, judge_claim
from fedrepro.reporting.statistics import Paired, common, interval

NEW_LOSS = 2.0  # "minimal performance reduction", in points
OVERHEAD = 0.1  # "modest": the server's time above that without diffusion, and at 50 or 100 clients above that at 20
NEGLIGIBLE = 0.01  # the embeddings' share of all scalars that are sent
FIRST = 20  # rounds of Figure 4 under whose curve the area is taken
# The rows that are statements of the paper as it prints them. SH-L2 is the quantity that the proof uses.
# SH-Th2-monotone and -M are about how the gap changes, which an upper bound does not say, and -trained, -N and
# -optimism are about the gap of trained parameters. SH-Th2-heads has another count than the printed one, and
# SH-Th2-shared is what the printed rows are compared with.
STATED = {
    *("SH-L1", "SH-L1-bent", "SH-L2-printed", "SH-L3", "SH-L3-drift", "SH-L4", "SH-L4-printed"),
    *("SH-Th1", "SH-Th1-start", "SH-Th1-printed"),
    *("SH-Th2", "SH-Th2-printed-64", "SH-Th2-printed-128", "SH-Th2-printed-256"),
}
REMARK = "SH-Th1-floor"  # ours: a term of Theorem 1's bound stays, while the paper states no bound that goes to zero
TABLES = {"SH-T1": (10, 20), "SH-T2": (30, 50)}


# --- Tables 1 and 2 ----------------------------------------------------------------------------------------------


def leads(get: Get) -> Iterator[tuple[str, pd.DataFrame, dict[str, Paired | None]]]:
    """Yield each column of Tables 1 and 2 with its runs, and FedSheafHN minus every other method."""
    for exhibit_id, counts in TABLES.items():
        for dataset, clients in product(DATASETS, counts):
            runs = frames.select(get(exhibit_id), {"dataset": dataset, "clients": clients})
            gaps = {name: frames.difference(runs, {"method": OURS}, {"method": name}, "percent") for name in OTHERS}
            yield f"{dataset}, {clients}", runs, gaps


def over_the_best(get: Get) -> Parts:
    """Return FedSheafHN minus the other method of best validation accuracy, for each column of Tables 1 and 2.

    The rival is chosen on validation nodes. The best of ten by test scores would be too good by chance.
    """
    parts: Parts = {}
    for name, runs, gaps in leads(get):
        best = rival_of({other: frames.scores(runs, {"method": other}, "val") for other, gap in gaps.items() if gap})
        parts[name + (f", over {best}" if best else "")] = (gaps.get(best), 0.0, math.inf)
    return parts


def cell_by_cell(get: Get) -> tuple[str, str]:
    """Judge FedSheafHN against every other method in every column of Tables 1 and 2, and count by method.

    A column counts as sure if its 95% interval, paired over seeds, leaves out zero. A pair without a printed number
    (FGGP on ogbn-arxiv, out of memory) is no part.
    """
    columns = [(name, gaps) for name, _, gaps in leads(get)]
    paper = pd.concat([printed(exhibit_id) for exhibit_id in TABLES]).dropna(subset=["value_number"])
    told_of = set(paper["dataset"] + ", " + paper["clients"].astype(str) + ", " + paper["method"])
    gap_of = {f"{name}, {other}": gaps[other] for name, gaps in columns for other in OTHERS}
    parts: Parts = {name: (gap, 0.0, math.inf) for name, gap in gap_of.items() if name in told_of}
    texts = []
    for other in OTHERS:
        over_other = [gap for _, gaps in columns if (gap := gaps[other])]
        above, sure = (sum(gap[index] > 0 for gap in over_other) for index in (0, 1))
        below = sum(gap.high < 0 for gap in over_other)
        texts += [f"{other} {above} ({sure} surely, {below} surely below) of {len(over_other)}"] if over_other else []
    (claim,) = claims.select(CLAIMS, ["SH-C1-cells"])
    evidence, verdict = judge_claim(parts, quantifier=claim.quantifier)
    ahead, cells = printed_lead()
    told = f"{evidence.partition(', in ')[0]} of {len(parts)} pairs of a column and a method" if texts else evidence
    told += f"; columns in which FedSheafHN is above: {', '.join(texts)}" if texts else ""
    return f"{told}; in the printed tables it is above in {ahead} of {cells}", verdict


def printed_lead() -> tuple[int, int]:
    """Return in how many pairs of a column and another method the printed Tables 1 and 2 have FedSheafHN above."""
    paper = pd.concat([printed(exhibit_id) for exhibit_id in TABLES]).dropna(subset=["value_number"])
    wide = paper.pivot_table(index=["dataset", "clients"], columns="method", values="value_number")
    gaps = wide.drop(columns=OURS).rsub(wide[OURS], axis=0)
    return int(gaps.gt(0).sum().sum()), int(gaps.notna().sum().sum())


def over_graphs(get: Get) -> Parts:
    """Return FedSheafHN minus Local, averaged over the columns of each graph of both tables, over the graphs."""
    both = pd.concat([rank_against_rivals(get(exhibit_id)) for exhibit_id in TABLES], ignore_index=True)
    means = both.groupby("dataset", sort=False)["over Local"].mean()
    return {f"{len(means)} graphs" if len(means) > 1 else "": (common(means, 0 * means), 0.0, math.inf)}


def without_overlap(get: Get) -> Parts:
    """Return FedSheafHN's lead over its rival without overlap minus that with overlap, over the graphs."""
    tables = (rank_against_rivals(get(exhibit_id)).groupby("dataset", sort=False) for exhibit_id in TABLES)
    gap = common(*(columns["over rival"].mean() for columns in tables))
    return {f"{gap.pairs} graphs" if gap else "": (gap, 0.0, math.inf)}


# --- clients and rounds ------------------------------------------------------------------------------------------


def sheaf(value: str, told: str, **wanted: Any) -> Difference:
    """Return mean or standard deviation over clients with sheaf collaboration minus that without."""
    per: dict[str, Sequence[Any]] = {"dataset": ABLATED, "clients": [20]}
    name = f"{{dataset}}, 20, {told}"
    first, second = ({"method": row} for row in SHEAF)
    return Difference("SH-F1b", first, second, per, name=name, value=value, of=over_clients, **wanted)


def areas(points: pd.DataFrame) -> pd.DataFrame:
    """Return the mean validation accuracy of each run over its first `FIRST` rounds, the area under its curve."""
    first = points[points["round"].le(FIRST)]
    return first.groupby(["dataset", "method", "seed"], sort=False)["val"].mean().rename("area").reset_index()


def convergence(panel: str, dataset: str) -> Difference:
    """Return the area under FedSheafHN's first rounds minus that of each other method, on one graph.

    All methods are scored after local training. In the first rounds a trained model fits its client much better than an
    averaged one, so that the view would decide who is first.
    """
    per: dict[str, Sequence[str]] = {"dataset": [dataset], "method": OTHERS}
    ours, of = {"method": OURS}, lambda runs: areas(rounds_of(runs))
    return Difference(f"SH-F4{panel}", ours, {}, per, above=0.0, value="area", of=of)


def newcomers(other: str, low: float) -> Difference:
    """Return the accuracy of new clients minus that of another group, for each graph and share of new ones."""
    per: dict[str, Sequence[Any]] = {"dataset": ABLATED, "share of new clients": settings.RATIOS}
    return Difference("SH-F5", {"clients": "new"}, {"clients": other}, per, low, of=new_clients)


# --- ablations and discussion ------------------------------------------------------------------------------------


def steps(get: Get) -> Iterator[tuple[str, dict[str, pd.Series]]]:
    """Yield each column of Table 4 with what each row adds to the row before it, by seed."""
    frame = get("SH-T4")
    rows = (settings.BASE_MODEL, *settings.MODULES)
    for dataset, clients in product(ABLATED, (20, 30)):
        cell = {"dataset": dataset, "clients": clients}
        scores = {row: frames.scores(frame, {**cell, "row": row}, "percent") for row in rows}
        yield f"{dataset}, {clients}", {row: (scores[row] - scores[before]).dropna() for before, row in pairwise(rows)}


def modules(get: Get) -> Parts:
    """Return each row of Table 4 minus the row before."""
    return {
        f"{name}, {row}": (common(gained, 0 * gained), 0.0, math.inf)
        for name, added in steps(get)
        for row, gained in added.items()
    }


def first_modules(get: Get) -> Parts:
    """Return the steps of the hypernetwork and the collaboration graph minus each later step of Table 4."""
    parts: Parts = {}
    for name, added in steps(get):
        first, later = list(added)[:2], list(added)[2:]
        for a, b in product(first, later):
            parts[f"{name}, {a} over {b}"] = (common(added[a], added[b]), 0.0, math.inf)
    return parts


def epochs(get: Get) -> Parts:
    """Return the most local epochs minus the smaller number of best validation accuracy, for each graph."""
    frame, parts = get("SH-F6"), Parts()
    real = frames.select(frame, {"dataset": DATASETS})
    for dataset, runs in real.groupby("dataset", sort=False) if len(real) else ():
        most = runs["local_epochs"].max()
        fewer = runs[runs["local_epochs"].lt(most)].groupby("local_epochs")["val"].mean()
        if len(fewer):
            best = fewer.idxmax()
            gap = frames.difference(runs, {"local_epochs": most}, {"local_epochs": best}, "percent")
            parts[f"{dataset}, {most:g} minus {best:g} epochs"] = (gap, -math.inf, 0.0)
    return parts


def optima(get: Get) -> Parts:
    """Return on each graph the number of local epochs that is best there minus the one that is best on another graph.

    The best number is that of highest mean validation accuracy.
    """
    real = frames.select(get("SH-F6"), {"dataset": DATASETS})
    graphs = dict(list(real.groupby("dataset", sort=False))) if len(real) else {}
    best = {name: runs.groupby("local_epochs")["val"].mean().idxmax() for name, runs in graphs.items()}
    parts: Parts = {}
    for name, other in permutations(best, 2):
        one, two = ({"local_epochs": best[graph]} for graph in (name, other))
        gap = frames.difference(graphs[name], one, two, "percent")
        parts[f"{name}, {best[name]:g} minus {best[other]:g} epochs, best on {other}"] = (gap, 0.0, math.inf)
    return parts


# The cost of forged embeddings for FED-PUB minus that for FedSheafHN. A gain is a negative cost, and no cost is cut off
# at zero: if only the costs above zero counted, the noisier method would pay for its noise.
COSTS = Difference(
    "SH-F7",
    {"method": "FED-PUB"},
    {"method": OURS},
    {"dataset": ABLATED, "ratio": settings.MALICIOUS[1:], "attack": settings.ATTACKS},
    above=0.0,
    value="loss",
    of=attack_cost,
)


def told_apart(get: Get) -> str:
    """Say in how many cells of SH-F7 the interval of `COSTS` leaves out zero."""
    gaps = [gap for _, (gap, *_) in COSTS.parts(get) if gap]
    apart = sum(not gap[1] <= 0 <= gap[2] for gap in gaps)
    told = f"The costs of the two methods differ by more than their 95% interval in {apart} of {len(gaps)} cells"
    told = told if gaps else "No cell has two seeds of both methods"
    return f"{told}." if apart else f"{told}: this experiment cannot tell the two methods apart."


def server_ratios(get: Get) -> Parts:
    """Return the server's time over that of two other rows of Table 6 at 20 clients, and at 50 and 100 over 20 clients.

    The rows lack a part of the server. The ratios are paired over seeds, and each has an upper bound.
    """
    frame = get("SH-T6")
    paper = printed("SH-T6").query("clients == '20'").set_index(["metric", "method"])["value_number"][SERVER_SECONDS]
    bounds = {"w/o Sheaf diffusion": 1 + OVERHEAD, settings.BASE_MODEL: paper[OURS] / paper[settings.BASE_MODEL]}
    parts: Parts = {}
    for dataset, rows in server_runs(frame).groupby("dataset", sort=False) if len(frame) else ():
        if str(dataset).endswith("~standin"):  # A bound of the paper says nothing of a stand-in.
            continue
        at = rows.groupby(["row", "clients"])["relative"]
        asked = [(f"{dataset}, over {row}", (row, 20), -1, bound) for row, bound in bounds.items()]
        asked += [(f"{dataset}, {n} over 20 clients", (OURS, n), 1, 1 + OVERHEAD) for n in (50, 100)]
        for name, cell, power, bound in asked:
            # It is NaN in another environment than the first.
            ratios = at.get_group(cell).dropna() ** power if cell in at.groups else pd.Series(dtype=float)
            gap = interval(ratios) if len(ratios) > 1 else None
            parts[f"{name} (at most {bound:.1f})"] = (gap, -math.inf, bound)
    return parts


def additions(get: Get) -> tuple[str, str]:
    """Judge what FedSheafHN sends next to FedAvg's weights, and the server's parameters at 20, 50 and 100 clients."""
    texts, held = [], []
    runs = get("SH-F2")
    sent = frames.messages(runs, CELL) if any(str(name).startswith("traffic.") for name in runs) else runs.iloc[:0]
    for (dataset, clients), rows in sent.groupby(["dataset", "clients"], sort=False):
        of = {name: group.groupby("message")["scalars"].sum() for name, group in rows.groupby("method")}
        if not {OURS, "FedAvg"} <= of.keys():
            continue
        embeddings, weights = of[OURS].get("embedding", 0.0), of[OURS].drop("embedding", errors="ignore").sum()
        share, more = embeddings / of[OURS].sum(), weights / of["FedAvg"].sum() - 1
        held += [share <= NEGLIGIBLE, more <= 0]
        name = f"{dataset}, {clients}"
        texts += [f"{name}: embeddings {100 * share:.3f}% of what is sent", f"{name}: the rest {100 * more:+.1f}%"]
    table = get("SH-T6").reindex(columns=["dataset", "row", "clients", "server_scalars"])
    for dataset, rows in table[table["row"].eq(OURS)].groupby("dataset", sort=False):
        counted = rows.dropna(subset=["server_scalars"]).drop_duplicates(["clients", "server_scalars"])
        counts = counted.set_index("clients")["server_scalars"].astype(int)
        if len(counts) > 1:
            held.append(counts.nunique() == 1)
            texts.append(f"{dataset}, parameters: " + ", ".join(f"{count} ({n})" for n, count in counts.items()))
    return judged(texts, held)


def guarantees(get: Get) -> tuple[str, str]:
    """Judge the theorems and lemmas as printed (`STATED`), without controls, our corrections and other quantities.

    The evidence adds our remark (`REMARK`), which does not count.
    """
    rows = [
        row
        for exhibit_id in ("SH-Th1", "SH-Th2")
        for row in checks.collect(get(exhibit_id), "SH-Th", "SH-L").itertuples()
    ]
    stated = [row for row in rows if row.id in STATED]
    text, verdict = judged(
        [f"{row.id}: {row.verdict}" for row in stated], [row.verdict == checks.HOLDS for row in stated]
    )
    remarks = [f"our remark, not counted: {row.id} {row.verdict}" for row in rows if row.id == REMARK]
    return "; ".join([text, *remarks]), verdict


def judged(texts: Sequence[str], held: Sequence[bool]) -> tuple[str, str]:
    """Return evidence and verdict of a claim that rests on several yes-or-no results."""
    return "; ".join(texts) or "nothing stored", claims.combine(held)


def over_local(exhibit_id: str) -> Difference:
    """Return FedSheafHN minus Local in each column of Table 1 or 2."""
    per = {"dataset": DATASETS, "clients": TABLES[exhibit_id]}
    return Difference(exhibit_id, {"method": OURS}, {"method": "Local"}, per, above=0.0)


# Each column of an ablation with every row that ours is compared with.
COLUMNS: dict[str, Sequence[Any]] = {"dataset": ABLATED, "clients": (20, 30)}
RIVALS = COLUMNS | {"method": [name for name in settings.PERSONAL if name != OURS]}
NETWORKS = COLUMNS | {"row": ("w/ GCN", "w/ GAT")}
REMOVED = COLUMNS | {"row": ("w/o Sheaf diffusion",)}


def over_networks(per: dict[str, Sequence[Any]]) -> Difference:
    """Return sheaf diffusion minus other rows of Table 5."""
    return Difference("SH-T5", {"row": "w/ Sheaf diffusion"}, {}, per, 0.0, name="{dataset}, {clients}, over {row}")


CLAIMS = claims.read(
    settings.PAPER,
    {
        "SH-C1": [over_the_best],
        "SH-C1-cells": cell_by_cell,
        "SH-C1-local": [over_local(exhibit_id) for exhibit_id in TABLES],
        "SH-C1-graphs": [over_graphs],
        "SH-C1-where": [without_overlap],
        "SH-C2": [Difference("SH-T3", {"method": OURS}, {}, RIVALS, below=0.0, value="std", of=over_clients)],
        "SH-C2-sheaf": [sheaf("mean", "accuracy", above=0.0), sheaf("std", "spread", below=0.0)],
        "SH-C3": [convergence(panel, dataset) for panel, dataset in settings.PANELS.items()],
        "SH-C4": [newcomers("trained", -NEW_LOSS)],
        "SH-C4-alone": [newcomers("new, alone", 0.0)],
        "SH-C5": [modules],
        "SH-C5-most": [first_modules],
        "SH-C5-networks": [over_networks(NETWORKS)],
        "SH-C5-removed": [over_networks(REMOVED)],
        "SH-C5-epochs": [epochs],
        "SH-C5-optimum": [optima],
        "SH-C6": [COSTS],
        "SH-C6-server": [server_ratios],
        "SH-C6-added": additions,
        "SH-C7": guarantees,
    },
)
