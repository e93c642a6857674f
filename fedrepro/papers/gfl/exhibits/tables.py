"""The tables of GFL-APPNP: stored runs under the paper's names, their readings, and subCora graph by graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.papers.gfl.exhibits import grids
from fedrepro.papers.gfl.exhibits.grids import CENTRAL, READINGS, REPETITIONS
from fedrepro.reporting import compare, figures, frames, readings, rule, statistics
from fedrepro.reporting.exhibits import published
from fedrepro.reporting.statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORE = "before.best_loss.test"  # of the averaged model, in the round of lowest validation loss (A.2.2)
KEY = ["dataset", "method", "setting"]  # of a published cell

OPTIONS = ("noise", "compensation", "model", "propagation", "local_epochs", "lr", "torch_init", "share")


# The mark of a printed lambda_max lies on the x axis, since its accuracy is not printed.
ON_AXIS: dict[str, Any] = {"marker": "v", "markerfacecolor": "white", "markeredgecolor": "#666666", "linestyle": ""}
ON_AXIS |= {"markersize": 6, "zorder": 4, "label": r"printed $\lambda_{\max}$ (its accuracy is not printed)"}


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of an exhibit under the paper's names; checks and attacks stay as they are.

    Training runs get `method`, `setting`, `column` (of Table 2), `reading` and `percent`. The runs of I = 1 stand a
    second time as APPNP.
    """
    if grids.GRIDS[exhibit_id].task != "train":
        return frame
    frame = frame.assign(**{name: None for name in (*OPTIONS, "dataset", "method", "seed", SCORE) if name not in frame})
    frame["dataset"] = frame["dataset"].astype(str)
    frame["reading"] = _readings(frame)
    frame["method"] = frame["method"].replace(grids.OWN_ROUND, "MLPs")
    without = frame["method"].isin(["CentralUnbiased", "MLPs"])
    frame["setting"] = _settings(frame).mask(without, "")
    ours, central = frame["method"].eq("GFL-APPNP"), frame["method"].eq("CentralUnbiased")
    names = frame["method"].mask(ours & (frame["noise"].fillna(0) > 0), "GFL-APPNP-V1")
    frame["method"] = names.mask(ours & frame["compensation"].eq(False), "GFL-APPNP-V2").mask(central, frame["model"])
    frame["column"] = frame["dataset"].map(grids.base_name)
    frame["percent"] = 100 * frame[SCORE].astype(float)
    first = frames.select(frame, {"method": "GFL-APPNP", "setting": "I=1", "column": grids.COLUMNS[:2]})
    return pd.concat([frame, first.assign(method="APPNP", setting="")], ignore_index=True)


def _settings(frame: pd.DataFrame) -> pd.Series:
    return "I=" + frame["local_epochs"].fillna(1).astype(int).astype(str)


def _readings(frame: pd.DataFrame) -> pd.Series:
    """Return which reading each training run belongs to, by its options."""
    dataset, propagation = frame["dataset"], frame["propagation"]
    code = propagation.eq("truncated") | dataset.str.endswith("as coded")
    rates = {name: lr for name, (lr, _) in grids.TABLES["mlps"]["code"].items()}
    coded = frame["lr"].eq(frame["method"].map(rates))
    code |= frame["method"].eq(grids.OWN_ROUND) | coded
    reading = code.map({True: "code", False: "text"}).mask(propagation.eq("printed"), "Eq. 13b")
    reading = reading.mask(coded & frame["method"].eq("MLPs"), "one round for all clients")
    supervised = dataset.map(grids.base_name).eq("csbm-SC")
    reading = reading.mask(supervised & frame["share"].eq("all"), "h of all samples")
    first = dataset.eq("csbm-DNC") & _settings(frame).eq("I=1") & frame["lr"].eq(grids.TABLES["printed"]["csbm-DNC"][0])
    reading = reading.mask(first & propagation.eq("truncated"), "code, printed rate")
    reading = reading.mask(dataset.str.endswith(" Z/p"), "Z/p").mask(dataset.str.endswith(" redrawn"), "redrawn")
    usual = frame["model"].map({model: row["options"].get("torch_init", False) for model, row in CENTRAL.items()})
    other = frame["torch_init"].eq(True).ne(usual.eq(True))
    return reading.mask(frame["method"].eq("CentralUnbiased") & other, "other initialization")


# --- Table 2 -----------------------------------------------------------------------------------------------------


def main_reading(frame: pd.DataFrame, exhibit: str, reading: str = grids.MAIN, value: str = "percent") -> pd.DataFrame:
    """Return the runs of one reading, under the columns of Table 2. Central models of DNC have one for both."""
    central = frame["method"].isin(CENTRAL) & frame["dataset"].eq("csbm-DNC") & frame["reading"].isin(READINGS)
    chosen = frame[frame["reading"].eq(reading) | (central & (reading in READINGS))]
    return chosen.assign(dataset=chosen["column"]).dropna(subset=[value])


def with_new_graphs(
    printed: pd.DataFrame, stored: Callable[[str], pd.DataFrame], reading: str = "main"
) -> pd.DataFrame:
    """Return printed numbers with our scores on graphs drawn anew, in `anew`, a Series by repetition (GFL-G).

    The paper and our main reading each keep one graph a column, whose variance no run of theirs shows. SNC has new
    graphs for I = 1 only. Its other rows get these scores too, and `anew_own` is False there.

    Args:
        printed: rows of `exhibits.published`.
        stored: returns the runs of an exhibit, here of GFL-T2-redrawn.
        reading: one of `other_readings`, or "main". Readings with votes take the scores by votes.
    """
    anew = stored("GFL-T2-redrawn")
    runs = main_reading(_votes(anew) if "votes" in reading else anew, "GFL-T2", "redrawn")
    known = {key: cell.set_index("seed")["percent"] for key, cell in runs.groupby(KEY)}
    first = {dataset: known.get((dataset, "GFL-APPNP", "I=1")) for dataset in grids.COLUMNS}
    keys = list(printed[KEY].itertuples(index=False, name=None))
    scores = pd.Series([known.get(key, first[key[0]]) for key in keys], printed.index, dtype=object)
    return printed.assign(anew=scores, anew_own=[key in known for key in keys])


def compare_with_published(frame: pd.DataFrame, exhibit: str, reading: str) -> pd.DataFrame:
    """Compare one reading with the published numbers."""
    paper = with_new_graphs(published("gfl").query("exhibit == @exhibit"), lambda _: frame)
    return compare.judge_table(main_reading(frame, exhibit, reading), paper, on=KEY, value="percent")


def other_readings(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of Table 2 in each reading of `readings.csv` but the main one.

    Args:
        frame: the runs of GFL-T2, GFL-T2-redrawn and GFL-Q1.
    """
    votes = _votes(frame)
    named = {"votes": (votes, "code"), "text": (frame, "text"), "text, votes": (votes, "text")}
    named |= {name: (frame, name) for name in ("code, printed rate", "other initialization", "redrawn")}
    return {name: main_reading(runs, "GFL-T2", reading) for name, (runs, reading) in named.items()}


def _votes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs on SNC, scored by votes of its nodes' samples."""
    snc = frame[frame["column"].eq("csbm-SNC")]
    return snc.assign(percent=100 * snc.get("facts.node_test", pd.Series(math.nan, snc.index)).astype(float))


def by_graph(frame: pd.DataFrame, again: pd.DataFrame) -> pd.DataFrame:
    """Return test accuracy in percent on each of subCora's 20 sub-graphs: in both readings, and as coded once more.

    Args:
        frame: the runs of Table 2, whose repetitions 0 to 19 are the sub-graphs.
        again: the runs of the same sub-graphs from other initial weights, repetitions 20 to 39.

    Returns:
        One row for each row of the table and each sub-graph: `text`, `code` and `again`.
    """
    both = pd.concat([frame, again.assign(reading="again")])
    both = both[both["column"].eq("subCora") & both["reading"].isin([*READINGS, "again"]) & both["method"].ne("APPNP")]
    both = both.assign(graph=both["seed"] % REPETITIONS)
    wide = both.pivot_table("percent", ["method", "setting", "graph"], "reading", sort=False)
    return wide.reindex(columns=[*READINGS, "again"]).reset_index().rename_axis(columns=None)


def beside_graph_by_graph(graphs: pd.DataFrame) -> pd.DataFrame:
    """Compare our means on subCora with the printed ones without the spread between sub-graphs, which are the same.

    If the reading is right, the printed mean and ours differ only by the initial weights. Two trainings of a sub-graph
    show their variance s^2, of 20 degrees of freedom. The paper's mean of 20 sub-graphs has the variance s^2 / 20, ours
    of two trainings s^2 / 40, and the printed digit its rounding error. The words are those of `reporting.rule`.

    Args:
        graphs: what `by_graph` returns.

    Returns:
        One row for each row of the table: the printed mean, ours (of both trainings), the standard deviation between
        sub-graphs and that between trainings of one, the difference with its half-widths and its word, the number of
        sub-graphs that were trained twice, and the paired difference of the text's reading to the code's with its 95%
        interval. The printed mean is over all sub-graphs, which differ too much for a mean over a few, so a row
        without all of them is not tested, and `why` says so.
    """
    printed = published("gfl").query("exhibit == 'GFL-T2' and dataset == 'subCora'").set_index(["method", "setting"])
    ours = [cell for cell in graphs.groupby(["method", "setting"], sort=False) if cell[0] in grids.GFL_ROWS]
    rows = []
    for cell, runs in ours:
        twice = runs.dropna(subset=["code", "again"])
        known = {"method": cell[0], "setting": cell[1], "printed": printed["value_number"][cell], "runs": len(twice)}
        paired = statistics.common(runs["text"], runs["code"])
        known |= dict(zip(("text_minus_code", "low", "high"), paired[:3])) if paired else {}
        if len(twice) < REPETITIONS:
            why = f"{len(twice)} of {REPETITIONS} sub-graphs trained twice" if len(twice) else "not run"
            rows.append(known | {"verdict": rule.NOT_TESTED, "why": why})
            continue
        means, count = twice[["code", "again"]].mean(axis=1), len(twice)
        variance = float(((twice["code"] - twice["again"]) ** 2).mean() / 2)
        error = math.sqrt(variance * 1.5 / count + 0.1**2 / 12)
        gap = float(means.mean()) - float(known["printed"])
        half90, half95 = (statistics.quantile(level, count) * error for level in (0.95, 0.975))
        known |= {"ours_mean": means.mean(), "sd_between_graphs": means.std(), "difference": gap}
        known |= {"sd_between_trainings": math.sqrt(variance), "half90": half90, "half95": half95}
        rows.append(known | {"verdict": str(rule.words(gap, half90, half95)), "why": ""})
    columns = ["method", "setting", "printed", "ours_mean", "sd_between_graphs", "sd_between_trainings", "difference"]
    columns += ["half90", "half95", "verdict", "runs", "text_minus_code", "low", "high", "why"]
    return pd.DataFrame(rows, columns=columns)


def sides(compared: pd.DataFrame) -> str:
    """Return on which side of the printed means the tested rows of `beside_graph_by_graph` lie, as a sentence."""
    gaps = compared["difference"].astype(float).dropna()
    if gaps.empty:
        return "No row is tested yet."
    below, above = int(gaps.lt(0).sum()), int(gaps.gt(0).sum())
    alone = below == len(gaps) > 1 or above == len(gaps) > 1
    shared = " All are on one side; they share sub-graphs, so that their signs are not independent." if alone else ""
    return f"Of {len(gaps)} tested rows ours is below the printed mean in {below} and above it in {above}.{shared}"


def open_settings(frame: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """Return mean and interval of every reading of what the text leaves open, with the published number (GFL-Q1).

    Args:
        frame: the runs of GFL-Q1.
        main: those of Table 2.
    """
    both = pd.concat([frame, main[main["method"].isin(["GFL-APPNP", "FedMLP", "MLPs", *CENTRAL])]])
    asked = both["setting"].eq("I=10") | (both["column"].eq("csbm-DNC") & both["setting"].isin(["I=1", ""]))
    asked |= both["method"].eq("MLPs")
    printed = published("gfl").query("exhibit == 'GFL-T2'").set_index(KEY)["value_number"]
    rows = []
    by = ["column", "method", "setting", "reading"]
    for key, group in both[asked & both["method"].ne("APPNP")].groupby(by, sort=False):
        mean, low, high, runs = interval(group["percent"].tolist())
        rows.append([*key, mean, low, high, runs, printed.get(tuple(key[:3]))])
    columns = ["dataset", "method", "setting", "reading", "mean", "low", "high", "runs", "published"]
    return pd.DataFrame(rows, columns=columns).sort_values(columns[:4])


# The line of a loss figure and round, and the losses that are averaged over repetitions.
LOSSES = (["task", "line", "round"], ["train_loss", "val_loss"])


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Return training and validation loss of the averaged model, one row for each run and stored round (text)."""
    chosen = frame[frame["reading"].eq("text")]
    chosen = chosen.assign(task=chosen["column"], line=(chosen["method"] + " " + chosen["setting"]).str.strip())
    lists = {name: f"facts.curve.{name}" for name in ("round", "train_loss", "val_loss")}
    points = frames.explode(chosen, lists, ["task", "line", "seed"], position="place")
    return points[["task", "line", "round", "seed", "train_loss", "val_loss"]]


def loss_figure(points: pd.DataFrame, panels: list[str], title: str, xscale: str = "linear") -> Figure | None:
    """Draw training and validation loss against the round, one panel for each combination of `panels`."""
    long = points.rename(columns={"train_loss": "training", "val_loss": "validation"})
    long = long.melt(["task", "line", "round", "seed"], ["training", "validation"], "loss", "mean loss")
    long = long.sort_values("task", kind="stable")
    look: dict[str, Any] = {"x": "round", "y": "mean loss", "by": "line", "title": title, "wide": 2, "beside": True}
    figure = figures.panels(long, panels, figures.curves, **look)
    for ax in figure.axes if figure is not None else ():
        ax.set_xscale(xscale)
    return figure


def boxes_by_reading(frame: pd.DataFrame, x: str, y: str, title: str, printed: pd.DataFrame) -> Figure | None:
    """Draw the quartiles of `y` for each `x` and the printed numbers, one panel for each reading, on one axis."""

    def draw(rows: pd.DataFrame, *, by: str, order: object, axes: Axes, title: str) -> Figure:
        figure = figures.boxes(rows, x, y, axes=axes, title=title, printed=printed)
        axes.tick_params(axis="x", labelrotation=60)
        return figure

    return figures.panels(frame.replace({"reading": readings.READ_AS}), "reading", draw, by=x, title=title, beside=True)
