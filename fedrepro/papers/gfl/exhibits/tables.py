"""The tables of GFL-APPNP: stored runs under the paper's names, and what explains a cell that differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.papers.gfl.exhibits.grids import CENTRAL, COLUMNS, GRIDS, PRINTED, READINGS, REPETITIONS, base_name
from fedrepro.reporting import compare, figures, frames, rule
from fedrepro.reporting.exhibits import published
from fedrepro.reporting.statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAJORITY = "majority over a node's samples"
SCORE = "before.best_loss.test"  # of the averaged model, in the round of lowest validation loss (A.2.2)
KEY = ["dataset", "method", "setting"]  # of a published cell

# Cells that print the number of another row (GFL-Q4). The last rows of SC are one too low, and the first repeats I = 1.
MISPRINTED = {
    ("csbm-SC", "FedMLP", "I=50"): ("csbm-SC", "GFL-APPNP", "I=1"),
    ("csbm-SC", "MLPs", ""): ("csbm-SC", "FedMLP", "I=50"),
}
TRAINED = {name for name, grid in GRIDS.items() if grid.paper()[0].task == "train"}
OPTIONS = ("noise", "compensation", "model", "propagation", "local_epochs", "lr", "torch_init")


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of an exhibit under the paper's names; checks and attacks stay as they are.

    Training runs get `method`, `setting`, `column` (of Table 2), `reading` and `percent`. The runs of I = 1 stand a
    second time as APPNP.
    """
    if exhibit_id not in TRAINED:
        return frame
    frame = frame.assign(**{name: None for name in (*OPTIONS, "dataset", "method", "seed", SCORE) if name not in frame})
    frame["dataset"] = frame["dataset"].astype(str)
    frame["reading"] = _readings(frame)
    without = frame["method"].isin(["CentralUnbiased", "MLPs"])
    frame["setting"] = _settings(frame).mask(without, "")
    ours, central = frame["method"].eq("GFL-APPNP"), frame["method"].eq("CentralUnbiased")
    names = frame["method"].mask(ours & (frame["noise"].fillna(0) > 0), "GFL-APPNP-V1")
    frame["method"] = names.mask(ours & frame["compensation"].eq(False), "GFL-APPNP-V2").mask(central, frame["model"])
    frame["column"] = frame["dataset"].map(base_name)
    frame["percent"] = 100 * frame[SCORE].astype(float)
    first = frames.select(frame, {"method": "GFL-APPNP", "setting": "I=1", "column": COLUMNS[:2]})
    return pd.concat([frame, first.assign(method="APPNP", setting="")], ignore_index=True)


def _settings(frame: pd.DataFrame) -> pd.Series:
    return "I=" + frame["local_epochs"].fillna(1).astype(int).astype(str)


def _readings(frame: pd.DataFrame) -> pd.Series:
    """Return which reading each training run belongs to, by its options."""
    dataset, propagation = frame["dataset"], frame["propagation"]
    code = propagation.eq("truncated") | dataset.str.endswith("as coded")
    code |= frame["lr"].eq(frame["method"].map({"FedMLP": 0.08, "MLPs": 0.05}))
    reading = code.map({True: "code", False: "text"}).mask(propagation.eq("printed"), "Eq. 13b")
    first = dataset.eq("csbm-DNC") & _settings(frame).eq("I=1") & frame["lr"].eq(PRINTED["csbm-DNC"][0])
    reading = reading.mask(first & propagation.eq("truncated"), "code, printed rate")
    reading = reading.mask(dataset.str.endswith(" Z/p"), "Z/p").mask(dataset.str.endswith(" redrawn"), "redrawn")
    usual = frame["model"].map({model: options.get("torch_init", False) for model, (options, _) in CENTRAL.items()})
    other = frame["torch_init"].eq(True).ne(usual.eq(True))
    return reading.mask(frame["method"].eq("CentralUnbiased") & other, "other initialization")


# --- Table 2 -----------------------------------------------------------------------------------------------------


def main_reading(frame: pd.DataFrame, exhibit: str, reading: str = READINGS[0], value: str = "percent") -> pd.DataFrame:
    """Return the runs of one reading, under the columns of Table 2. Central models have one reading for both."""
    central = frame["method"].isin(CENTRAL) & frame["dataset"].eq("csbm-DNC") & frame["reading"].isin(READINGS)
    chosen = frame[frame["reading"].eq(reading) | (central & (reading in READINGS))]
    return chosen.assign(dataset=chosen["column"]).dropna(subset=[value])


def published_beside(frame: pd.DataFrame, exhibit: str, reading: str, value: str = "percent") -> pd.DataFrame:
    """Compare one reading with the published numbers."""
    chosen = main_reading(frame, exhibit, reading, value)
    paper = published("gfl").query("exhibit == @exhibit")
    return compare.table(chosen, paper, on=KEY, value=value)


def explained(frame: pd.DataFrame, exhibit: str = "GFL-T2") -> pd.DataFrame:
    """Return Table 1 or 2 in the text's reading with an `outcome`: its verdict, or what explains the cell.

    A cell is explained if stored runs under another reading agree with the printed value. The readings are the code's;
    its propagation at the printed rate; the majority over a node's samples (SNC); the other of two usual
    initializations (DNC's central models); the row whose number a cell repeats (`MISPRINTED`); and another graph of the
    same block model, as the paper's graphs are not published.
    """
    text, code = (published_beside(frame, exhibit, reading) for reading in READINGS)
    other, graphs = _other_readings(frame, exhibit)
    outcomes = []
    for row in text.to_dict("records"):
        cell, printed = tuple(row[name] for name in KEY), (row["published_mean"], row["published_spread"])
        agreeing = _agreeing(other, graphs, cell, *printed)
        if not agreeing and cell in MISPRINTED:
            method, setting = MISPRINTED[cell][1:]
            repeated = f"the number of {method} {setting}, repeated"
            agreeing = [f"{repeated} ({name})" for name in _agreeing(other, graphs, MISPRINTED[cell], *printed)]
        differs = f"explained: {agreeing[0]}" if agreeing else row["verdict"]
        outcomes.append(row["verdict"] if row["verdict"] in rule.FITS else differs)
    names = {name: f"code_{name}" for name in ("ours_mean", "ours_sd", "runs")}
    more = code[[*KEY, *names]].rename(columns=names)
    return text.assign(outcome=outcomes).merge(more, on=KEY, how="left")


Tables = dict[str, pd.DataFrame]


def _other_readings(frame: pd.DataFrame, exhibit: str) -> tuple[Tables, Tables]:
    """Return the tables of the other readings by cell, and those on graphs drawn anew."""

    def indexed(reading: str, value: str = "percent") -> pd.DataFrame:
        table = published_beside(frame, exhibit, reading, value)
        return table[table["runs"] > 0].set_index(KEY)

    other, graphs = {"code": indexed("code")}, {"code": indexed("redrawn")}
    if "facts.node_test" in frame:
        frame = frame.assign(votes=100 * frame["facts.node_test"].astype(float))
        other |= {f"{reading}, {MAJORITY}": indexed(reading, "votes") for reading in READINGS}
        graphs[f"code, {MAJORITY}"] = indexed("redrawn", "votes")
    other["code's propagation, printed rate"] = indexed("code, printed rate")
    other["other initialization"] = indexed("other initialization")
    return other, graphs


def _agreeing(other: Tables, graphs: Tables, cell: tuple[str, ...], printed: float, spread: float) -> list[str]:
    """Return the names of the readings under which a cell's runs agree with a printed number."""
    names = [name for name, table in other.items() if cell in table.index and agrees(table.loc[cell], printed, spread)]
    for name, table in graphs.items():
        drawn = cell in table.index and cell in other[name].index
        if drawn and is_another_graph(table.loc[cell], other[name].loc[cell], printed):
            names.append(f"{name}, another graph")
    return names


def agrees(cell: Mapping[str, Any], printed: float, spread: float) -> bool:
    """Return whether the printed value is in the runs' 95% interval, or their mean in the printed interval.

    An interval of more than twice the printed width says nothing.
    """
    if not cell["runs"] > 1:
        return False
    half = 2 * cell["ours_sd"] / cell["runs"] ** 0.5
    return bool(half <= 2 * spread and abs(cell["ours_mean"] - printed) <= max(half, spread))


def is_another_graph(redrawn: Mapping[str, Any], fixed: Mapping[str, Any], printed: float) -> bool:
    """Return whether a printed mean of 20 repetitions on one unknown graph is one that a new graph may give.

    It lies within two standard deviations. Their variance adds that between graphs (repetitions on new graphs less
    repetitions on our graph), that of the paper's mean and that of ours. Two deviations of over 3 points say nothing.
    """
    if not min(redrawn["runs"], fixed["runs"]) > 1:
        return False
    spread, within = redrawn["ours_sd"] ** 2, fixed["ours_sd"] ** 2
    half = 2 * (max(spread - within, 0.0) + within / REPETITIONS + spread / redrawn["runs"]) ** 0.5
    return bool(half <= 3 and abs(redrawn["ours_mean"] - printed) <= half)


def open_settings(frame: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """Return mean and interval of every reading of what the text leaves open, with the published number (GFL-Q1).

    Args:
        frame: the runs of GFL-Q1.
        main: those of Table 2.
    """
    both = pd.concat([frame, main[main["method"].isin(["GFL-APPNP", "FedMLP", *CENTRAL])]])
    asked = both["setting"].eq("I=10") | (both["column"].eq("csbm-DNC") & both["setting"].isin(["I=1", ""]))
    printed = published("gfl").query("exhibit == 'GFL-T2'").set_index(KEY)["value_number"]
    rows = []
    by = ["column", "method", "setting", "reading"]
    for key, group in both[asked & both["method"].ne("APPNP")].groupby(by, sort=False):
        mean, low, high, runs = interval(group["percent"].tolist())
        rows.append([*key, mean, low, high, runs, printed.get(tuple(key[:3]))])
    columns = ["dataset", "method", "setting", "reading", "mean", "low", "high", "runs", "published"]
    return pd.DataFrame(rows, columns=columns).sort_values(columns[:4])


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Return training and validation loss of the averaged model, one row for each run and stored round (text)."""
    chosen = frame[frame["reading"].eq("text")]
    chosen = chosen.assign(task=chosen["column"], line=(chosen["method"] + " " + chosen["setting"]).str.strip())
    lists = {name: f"facts.curve.{name}" for name in ("round", "train_loss", "val_loss")}
    points = frames.explode(chosen, lists, ["task", "line", "seed"], position="place")
    return points[["task", "line", "round", "seed", "train_loss", "val_loss"]]


def mean_losses(points: pd.DataFrame) -> pd.DataFrame:
    """Return the mean losses over repetitions by task, line and round, with their number of runs."""
    groups = points.groupby(["task", "line", "round"], sort=False)
    means = groups[["train_loss", "val_loss"]].mean().reset_index()
    return means.assign(runs=groups["seed"].count().to_numpy())


def loss_figure(points: pd.DataFrame, panels: list[str], title: str) -> Figure | None:
    """Draw training and validation loss against the round, one panel for each combination of `panels`."""
    long = points.rename(columns={"train_loss": "training", "val_loss": "validation"})
    long = long.melt(["task", "line", "round", "seed"], ["training", "validation"], "loss", "mean loss")
    long = long.sort_values("task", kind="stable")
    return figures.panels(long, panels, figures.curves, x="round", y="mean loss", by="line", title=title, wide=2)


def boxes_by_reading(frame: pd.DataFrame, x: str, y: str, title: str) -> Figure | None:
    """Draw the quartiles of `y` for each `x`, one panel for each reading."""

    def draw(rows: pd.DataFrame, *, by: str, order: object, axes: Axes, title: str) -> Figure:
        figure = figures.boxes(rows, x, y, axes=axes, title=title)
        axes.tick_params(axis="x", labelrotation=60)
        return figure

    return figures.panels(frame, "reading", draw, by=x, title=title)
