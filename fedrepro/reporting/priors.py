"""Estimate the priors of each paper for the variance of our scores over runs; `priors.csv` keeps them.

A row holds the paper, the quantity (`score`, one method's accuracy, or `lead`, the paired difference of two methods),
the graph, the prior's standard deviation in points, its degrees of freedom, and the number of cells behind it. The
cells are those of the paper's main tables on real graphs with two runs or more. Scores scatter on some graphs several
times as much as on others, so a graph with `ENOUGH` cells has a separate prior. The row of the graph `*` rests on all
cells of the paper, and serves the other graphs. The file changes only when somebody runs
`python -m fedrepro.reporting.priors`, so that a new run changes no word but its own cell's.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fedrepro import paths
from fedrepro.reporting import exhibits, rule

FILE = Path(__file__).with_name("priors.csv")
COLUMNS = ("paper", "quantity", "dataset", "sd", "freedom", "cells")
SCORE, LEAD = "score", "lead"
EVERY, ENOUGH = "*", 20


@cache
def _kept() -> dict[tuple[str, ...], rule.Prior]:
    return {
        (row["paper"], row["quantity"], row["dataset"]): rule.Prior(float(row["sd"]) ** 2, float(row["freedom"]))
        for row in paths.read_csv(FILE)
    }


def prior(paper: str, dataset: str = EVERY, quantity: str = SCORE) -> rule.Prior:
    """Return the committed prior of a graph, else of its paper, in points^2; `rule.NO_PRIOR` for one without."""
    every = _kept().get((paper, quantity, EVERY), rule.NO_PRIOR)
    return _kept().get((paper, quantity, dataset), every)


def estimated(spreads: Mapping[tuple[str, ...], tuple[float, int]]) -> tuple[rule.Prior, int]:
    """Estimate a prior from the spreads of cells: a standard deviation in points and the number of runs for each.

    Returns:
        The prior and the number of cells it rests on: those of two runs or more whose runs are not all equal. Its
        degrees of freedom are at most those of all these cells together, also where their spreads differ no more than
        samples of one variance do.
    """
    known = [(sd, runs) for sd, runs in spreads.values() if runs > 1 and sd > 0]
    found = rule.estimate([sd**2 for sd, _ in known], [runs - 1 for _, runs in known])
    return found._replace(freedom=min(found.freedom, float(sum(runs - 1 for _, runs in known)))), len(known)


def spreads(paper: str) -> dict[str, dict[str, dict[tuple[str, ...], tuple[float, int]]]]:
    """Return the spread over runs of every printed cell, and of every printed lead, of a paper's main tables.

    A cell that several tables print is one cell. Only real graphs count.

    Returns:
        By quantity and graph, the standard deviation (points) and the number of runs of each cell.
    """
    from fedrepro.reporting import compare, effects
    from fedrepro.reporting.session import begin, main_runs

    notebook = begin(f"{paper}/priors", profile="paper", device="cpu", seeds=0, engine="local")
    by_kind: dict[str, dict[str, dict[tuple[str, ...], tuple[float, int]]]] = {SCORE: {}, LEAD: {}}
    for exhibit_id in exhibits.study(paper).tables:
        frame, published, layout = main_runs(notebook, exhibit_id)
        key = layout.key
        runs = effects.series(frame, key, layout.value)
        cells = {compare.cell_key(cell, key): cell for cell in published.to_dict("records")}
        for name, cell in cells.items():
            if name in runs:
                of_graph = by_kind[SCORE].setdefault(cell["dataset"], {})
                of_graph[name] = (float(runs[name].std(ddof=1)) / cell["point"], len(runs[name]))
        for top, other in effects.pairs(list(cells.values()), layout.headline, layout.columns):
            names = [compare.cell_key(cell, key) for cell in (top, other)]
            if all(name in runs for name in names):
                gaps = (runs[names[0]] - runs[names[1]]).dropna() / top["point"]
                of_graph = by_kind[LEAD].setdefault(top["dataset"], {})
                of_graph[(*names[0], *names[1])] = (float(gaps.std(ddof=1)), len(gaps))
    return by_kind


def main() -> None:
    """Estimate the priors of all papers from the store and write the file."""
    with FILE.open("w", encoding="utf-8", newline="") as content:
        out = csv.writer(content, lineterminator="\n")
        out.writerow(COLUMNS)
        for paper in exhibits.papers():
            for quantity, graphs in spreads(paper).items():
                whole = {name: cell for cells in graphs.values() for name, cell in cells.items()}
                for dataset, known in {EVERY: whole, **graphs}.items():
                    spread = sum(runs > 1 and sd > 0 for sd, runs in known.values())
                    if spread < (2 if dataset == EVERY else ENOUGH):
                        continue  # Every graph of Feras's main table is a stand-in here.
                    found, cells = estimated(known)
                    sd, freedom = f"{math.sqrt(found.variance):.4g}", f"{found.freedom:.4g}"
                    out.writerow([paper, quantity, dataset, sd, freedom, cells])


if __name__ == "__main__":
    main()
