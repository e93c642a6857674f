"""Compare other readings with Tables 1 and 2: the lineage's protocol, the literal text, other views, FGGP's own code.

The settings of each reading, and when they were fixed, are in `settings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits.settings import FGGP_READINGS, LINEAGE, LITERAL, OTHERS, PAPER
from fedrepro.papers.fedsheafhn.exhibits.tables import CELL, printed
from fedrepro.reporting import compare, dots, exhibits, frames, rule
from fedrepro.reporting.statistics import mean_gap
from fedrepro.reporting.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OTHER_VIEW, LAST_ROUND = "the other view", "the last round"
LINEAGE_RUNS = 3  # runs behind each mean in `elsewhere.csv`


def printed_elsewhere(datasets: list[str]) -> pd.DataFrame:
    """Return the numbers that another work prints for cells of Table 1, on some graphs and for the methods at hand.

    It is not known whether its three runs redraw split and partition.
    """
    frame = exhibits.published(PAPER, "elsewhere.csv")
    frame = frame[frame["dataset"].isin(datasets) & frame["method"].isin(LINEAGE) & frame["clients"].isin(["10", "20"])]
    return frame.assign(exhibit="SH-T1-lineage", runs_published=LINEAGE_RUNS, redrawn=None)


def lineage_table(frame: pd.DataFrame, datasets: list[str]) -> pd.DataFrame:
    """Compare the runs of SH-T1-lineage with the numbers printed for their protocol.

    The column `SH-T1 prints` is the number that the paper has in the cell, and `copied` says whether mean and spread
    are equal to those of the other work to the last digit.
    """
    elsewhere = printed_elsewhere(datasets)
    table = compare.judge_table(frame, elsewhere, on=CELL, value="percent")
    own = printed("SH-T1").set_index(CELL)[["value", "spread"]]
    cells = [own.loc[key] for key in table[CELL].itertuples(index=False, name=None)]
    texts = [f"{cell['value']} ± {cell['spread']}" for cell in cells]
    return table.assign(**{"SH-T1 prints": texts, "copied": [a == b for a, b in zip(texts, table["published"])]})


def mark_elsewhere(figure: Figure, table: pd.DataFrame, rows: Sequence[str], name: str) -> None:
    """Mark in a figure of `figures.dots` what another work prints for its cells under its own protocol.

    Args:
        figure: of Table 1.
        table, rows: what `figures.dots` was given.
        name: what the legend calls the marks.
    """
    names = list(dict.fromkeys(table[list(rows)].astype(str).agg(" ".join, axis=1).str.strip()))
    elsewhere = printed_elsewhere(list(table["dataset"].unique()))
    labels = elsewhere[list(rows)].astype(str).agg(" ".join, axis=1).str.strip()
    for axes in figure.axes:
        here = elsewhere["dataset"].eq(axes.get_title().partition("\n")[0]) & labels.isin(names)
        heights = [names.index(label) for label in labels[here]]
        (marks,) = axes.plot(elsewhere["value_number"][here], heights, "D", color=COLOURS[1], markersize=4, zorder=4)
    dots.explain(figure, marks, name)


def views(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of Tables 1 and 2 scored at other points, by the reading's name: no run is trained for them.

    The paper does not say when its accuracy is measured (SH-V). Local has no model of a server, and so no other view.

    Args:
        frame: the runs as `tables.scored` returns them.
    """
    federated = frame[frame["method"].ne("Local")]
    found = {OTHER_VIEW: federated.assign(percent=federated["other"]), LAST_ROUND: frame.assign(percent=frame["last"])}
    return {name: runs.dropna(subset="percent") for name, runs in found.items()}


def literal_table(frame: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """Compare the runs of SH-T1-literal with the printed cells, next to the main reading.

    Args:
        frame: the runs of SH-T1-literal.
        main: Tables 1 and 2 as `tables.beside_published` gives them, one below the other.

    Returns:
        The columns of `compare.judge_table`, `main_difference` and `main_verdict`.
    """
    paper = pd.concat([printed("SH-T1"), printed("SH-T2")], ignore_index=True)
    paper = paper[paper["dataset"].isin(LITERAL) & paper["method"].isin(OTHERS)]
    table = compare.judge_table(frame, paper, on=CELL, value="percent")
    names = {"difference": "main_difference", "verdict": "main_verdict"}
    return table.merge(main[["exhibit", *CELL, *names]].rename(columns=names), "left", on=["exhibit", *CELL])


def literal_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each method the mean difference to the printed cells, and the cells that fit, under both readings.

    Only cells that both readings have are counted. A cell fits if its word is "agrees" or "compatible". A printed
    number of another protocol fits nowhere, and is not among the cells `tested`. `runs` is the median number of runs
    of a cell under the literal reading.
    """
    both = table.dropna(subset=["difference", "main_difference"])
    fits = {
        f"{name} fits": both[column].isin(rule.FITS)
        for name, column in (("main", "main_verdict"), ("literal", "verdict"))
    }
    rows = both.assign(**fits, tested=both["verdict"].ne(rule.NOT_TESTED)).groupby("method", sort=False)
    means = rows[["main_difference", "difference"]].mean().rename(columns={"difference": "literal_difference"})
    counts = rows[[*fits, "tested"]].sum()
    return means.join(counts).assign(cells=rows.size(), runs=rows["runs"].median()).reset_index()


def fggp_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of FGGP's vote and of its classifiers under each reading (SH-M4), in percent.

    The vote is scored under the averaged network, the classifiers after local training. The vote minus that of SH-T1 is
    paired over seeds, with its 95% interval.
    """
    rows = []
    usual = frames.scores(frame, {"row": next(iter(FGGP_READINGS))}, "percent")
    for row in FGGP_READINGS:
        vote, classifier = (frames.scores(frame, {"row": row}, score) for score in ("percent", "other"))
        means = (vote.mean(), vote.std(), classifier.mean(), classifier.std())
        rows.append([row, *means, *mean_gap(vote, usual)[:3], len(vote)])
    columns = ["row", "vote", "vote_sd", "classifier", "classifier_sd", "vote minus SH-T1", "low", "high", "runs"]
    return pd.DataFrame(rows, columns=columns)
