"""The prior of each paper for the variance of our scores over runs, estimated once and kept in `priors.csv`.

A row holds the paper, the quantity (`score`, one method's accuracy, or `lead`, the paired difference of two methods),
the prior's standard deviation in points, its degrees of freedom, and the number of cells behind it. The cells are those
of the paper's main tables on real graphs with two runs or more. The file changes only when somebody runs
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
COLUMNS = ("paper", "quantity", "sd", "freedom", "cells")
SCORE, LEAD = "score", "lead"


@cache
def _kept() -> dict[tuple[str, str], rule.Prior]:
    rows = paths.read_csv(FILE)
    return {(row["paper"], row["quantity"]): rule.Prior(float(row["sd"]) ** 2, float(row["freedom"])) for row in rows}


def prior(paper: str, quantity: str = SCORE) -> rule.Prior:
    """Return the committed prior of a paper, in points^2; `rule.NO_PRIOR` for a paper without one."""
    return _kept().get((paper, quantity), rule.NO_PRIOR)


def estimated(spreads: Mapping[tuple[str, ...], tuple[float, int]]) -> tuple[rule.Prior, int]:
    """Estimate a prior from the spreads of cells: a standard deviation in points and the number of runs for each.

    Returns:
        The prior and the number of cells it rests on: those of two runs or more whose runs are not all equal.
    """
    known = [(sd, runs) for sd, runs in spreads.values() if runs > 1 and sd > 0]
    return rule.estimate([sd**2 for sd, _ in known], [runs - 1 for _, runs in known]), len(known)


def spreads(paper: str) -> dict[str, dict[tuple[str, ...], tuple[float, int]]]:
    """Return the spread over runs of every printed cell, and of every printed lead, of a paper's main tables.

    A cell that several tables print is one cell. Only real graphs count.
    """
    from fedrepro.reporting import compare, effects
    from fedrepro.reporting.session import begin, main_runs

    notebook = begin(f"{paper}/priors", profile="paper", device="cpu", seeds=0, engine="local")
    found: dict[str, dict[tuple[str, ...], tuple[float, int]]] = {SCORE: {}, LEAD: {}}
    for exhibit_id in exhibits.study(paper).tables:
        frame, published, layout = main_runs(notebook, exhibit_id)
        key = [*layout.columns, *layout.rows]
        runs = effects.series(frame, key, layout.value)
        cells = {compare.cell_key(cell, key): cell for cell in published.to_dict("records")}
        for name, cell in cells.items():
            if name in runs:
                found[SCORE][name] = (float(runs[name].std(ddof=1)) / cell["point"], len(runs[name]))
        for top, other in effects.pairs(list(cells.values()), layout.headline, layout.columns):
            names = [compare.cell_key(cell, key) for cell in (top, other)]
            if all(name in runs for name in names):
                gaps = (runs[names[0]] - runs[names[1]]).dropna() / top["point"]
                found[LEAD][(*names[0], *names[1])] = (float(gaps.std(ddof=1)), len(gaps))
    return found


def main() -> None:
    """Estimate the priors of all papers from the store and write the file."""
    with FILE.open("w", encoding="utf-8", newline="") as content:
        out = csv.writer(content, lineterminator="\n")
        out.writerow(COLUMNS)
        for paper in exhibits.papers():
            for quantity, known in spreads(paper).items():
                if sum(runs > 1 for _, runs in known.values()) < 2:
                    continue  # Every graph of Feras's main table is a stand-in here.
                found, cells = estimated(known)
                out.writerow([paper, quantity, f"{math.sqrt(found.variance):.4g}", f"{found.freedom:.4g}", cells])


if __name__ == "__main__":
    main()
