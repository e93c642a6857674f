"""The frames of FedGAT's exhibits: the paper's names for stored runs, counts of messages, and checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedrepro.papers.fedgat.exhibits import grids
from fedrepro.papers.fedgat.exhibits.grids import AGGREGATED, AS_CODED, CENTRAL, CODE_READING
from fedrepro.reporting import checks, figures, frames

# Pooled test accuracy of the server's model, a fraction: at the round of best validation accuracy, and at the last.
SCORE, LAST = "before.best.test", "before.last.test"
CELL = ["dataset", "partition", "method"]
# From FG-T1-code to the reading *code*. DistGAT has no layer of the code, so its third step is the whole.
STEPS = ("FG-T1-code", "two softmaxes", "and centred features", "and the code's layer 1")
EXACT = 1e-9  # what two ways to compute a layer in float64 may differ by
SLOWDOWN, GIBIBYTES = 8.0, 1.5  # limits of FedGAT's round: times one of DistGAT, and memory
SENT = [f"{form}.{unit}" for unit in ("scalars", "bytes") for form in ("matrix", "vector", "raw")]
BESIDE = ["theorem1.cubed", "theorem1.squared", "cross_client_edges"]


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Give training runs the names of Table 1, their reading, and their score in it.

    The column `score` holds the test accuracy at the last round in the reading *code*, and at the round of best
    validation accuracy in the others. The column `percent` is a hundred times that.
    """
    if SCORE not in frame:
        return frame
    named = frame.assign(registered=frame["method"], method=[_name_in_table1(run) for run in frame.to_dict("records")])
    if "lone_neighbour" in named:
        named["lone_neighbour"] = named["lone_neighbour"].fillna("kept")  # the method's default
    prepared = named.get("prepare", pd.Series(grids.SETTING["prepare"], named.index))
    named["reading"] = [grids.reading(*run) for run in zip(named["registered"], prepared)]
    last = named.get(LAST, named[SCORE])
    score = named[SCORE].where(named["reading"] != CODE_READING, last)
    return named.assign(score=score, percent=100 * score)


def _name_in_table1(run: dict[str, Any]) -> str:
    method = str(run["method"])
    if method == "Central" or (method.endswith(AS_CODED) and run["partition"] == CENTRAL):
        return str(run["model"])
    return method.removesuffix(AGGREGATED).removesuffix(AS_CODED)


def main_reading(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of a main table that come first, which are those of the reading *code*."""
    return frames.select(frame, {"reading": CODE_READING})


def steps_to_code(frame: pd.DataFrame, before: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return what each step from FG-T1-code to the reading *code* changes, one row a cell and step.

    Args:
        frame: the runs of FG-T1-code-full.
        before: those of FG-T1-code.
        published: the printed cells of Table 1.

    Returns:
        The mean test accuracy in percent at the last round and at the round of best validation accuracy, the standard
        deviation at the last, the number of runs, and the printed number.
    """
    named = frame.assign(step=[_step(run) for run in frame.to_dict("records")])
    steps = pd.concat([before.assign(step=STEPS[0]), named])
    groups = (100 * steps.set_index([*CELL, "step"])[[LAST, SCORE]]).groupby([*CELL, "step"], sort=False)
    table = groups.agg(last=(LAST, "mean"), last_sd=(LAST, "std"), best_validation=(SCORE, "mean"), runs=(LAST, "size"))
    table = table.reset_index().sort_values("step", key=lambda steps: steps.map(STEPS.index), kind="stable")
    printed = published.assign(published=100 * published["value_number"])[[*CELL, "published"]]
    first = {name: list(dict.fromkeys(printed[name])) for name in CELL}  # graphs, partitions, rows as they are printed
    return printed.merge(table, on=CELL).sort_values(
        CELL, key=lambda column: column.map(first[column.name].index), kind="stable"
    )


def _step(run: dict[str, Any]) -> str:
    """Return the name of the last step that a run of FG-T1-code-full takes."""
    if run["prepare"] == grids.SETTING["prepare"]:
        return STEPS[1]
    return STEPS[2] if run["method"] == "DistGAT" or run["first_layer"] == "gat" else STEPS[3]


def scored_rounds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what FG-Q3-scored measured: a row for each graph, partition and number of clients.

    Returns:
        `runs`; the median scored `round`; the largest score and the largest shares `outside` the interval and
        `negative` at that round; the largest score at the `last` round; the mean shares of test nodes that a GAT with
        the same weights (`other`) and the plain mean of the neighbours (`mean_other`) predict otherwise; and by how
        many points of accuracy they lie above FedGAT (`gat`, `mean`).
    """
    if frame.empty:
        return frame
    groups = frame.groupby(["dataset", "partition", "clients"], sort=False)
    shares: dict[str, Any] = {"round": "median"} | dict.fromkeys(("largest_score", "outside", "negative"), "max")
    shares |= {"last.largest_score": "max", "other": "mean", "mean_other": "mean"}
    table = groups.agg(shares).rename(columns={"largest_score": "largest", "last.largest_score": "last"})
    table.insert(0, "runs", groups.size())
    for name in ("gat", "mean"):
        table[name] = 100 * (groups[f"{name}_test"].mean() - groups["test"].mean())
    return table.reset_index()


def seeds_told(curve: pd.DataFrame, table1: pd.DataFrame) -> str:
    """Return how many seeds of FG-T1's cells a curve over the clients has at their number of clients, or nothing."""
    cells = frames.select(table1, {name: curve[name].iloc[0] for name in ("dataset", "partition")})
    cells = cells[cells["method"].isin(curve["method"])]
    held = curve.loc[curve["clients"].isin(cells["clients"]), "seed"].nunique()
    every, clients = cells["seed"].nunique(), ", ".join(f"{count:.0f}" for count in cells["clients"].unique())
    return f"; at {clients} clients {held} of the {every} seeds of FG-T1" if held < every else ""


def panels_of_readings(curve: pd.DataFrame, printed: pd.DataFrame | None = None, title: str = "") -> Figure | None:
    """Draw accuracy in percent against the clients, one panel for each value of the column `panel`.

    The two panels of a row have one vertical axis.
    """
    look: dict[str, Any] = {"x": "clients", "y": "percent", "by": "method", "wide": 2, "beside": True, "title": title}
    return figures.panels(curve, "panel", figures.curves, printed=printed, ylabel="test accuracy (percent)", **look)


def validation_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the validation accuracy of the tuning runs, one row a cell of Table 1 and one column a point tried."""
    point = "lr " + frame["lr"].astype(str) + ", decay " + frame["weight_decay"].astype(str)
    if "optimizer" in frame:  # the pairs leave it at its default
        point = point.mask(frame["optimizer"].eq("sgd"), "its own paper's")
    keys = ["dataset", "method", "partition", "rounds"]
    wide = frame.assign(point=point).pivot_table(index=keys, columns="point", values="before.best.val", sort=False)
    return wide.rename_axis(columns=None).reset_index()


def communication(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what is sent before training: means over seeds for each graph, partition and number of clients.

    The columns `theorem1_*` hold the cost in Theorem 1 with the cube of the largest degree, and with its square.
    """
    keys = ["dataset", "partition", "clients"]
    groups = frame.groupby(keys, sort=False)
    table = groups[SENT + BESIDE].mean().rename(columns=lambda name: name.replace(".", "_"))
    for form in ("matrix", "vector"):
        table[f"{form}_sd"] = groups[f"{form}.scalars"].std().fillna(0.0)
    table["matrix_over_vector"] = table["matrix_scalars"] / table["vector_scalars"]
    return table.assign(runs=groups.size()).reset_index()


def protocol_checks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the checks of FG-A1 and FG-A3: the largest error of a layer over all graphs, and the controls."""
    if frame.empty:
        return checks.collect(frame)
    graphs = ", ".join(f"{run.dataset} ({run.whole} whole, {run.in_blocks} in blocks)" for run in frame.itertuples())
    matrix, vector = frame[["matrix", "matrix_in_blocks"]].to_numpy().max(), frame["vector"].max(skipna=False)
    layer = f"the messages of Algorithm 1 give the layer of the edge form at every node: {graphs}"
    broken = "the same with features of other columns in the message"
    rows = [
        checks.row("FG-A1", layer, matrix, EXACT),
        checks.row("FG-A3", "Vector FedGAT, steps 1 to 4, gives the same layer at every node", vector, EXACT),
        checks.control("FG-A1", broken, frame["matrix_control"].min(skipna=False), EXACT),
        checks.control("FG-A3", broken, frame["vector_control"].min(skipna=False), EXACT),
    ]
    return pd.DataFrame(rows)


def worst_attacks(frame: pd.DataFrame, lone: str = "kept") -> pd.DataFrame:
    """Return the attack on the most nodes for each form, with lone cross-client neighbours `kept` or `dropped`."""
    some = frame[frame["lone"] == lone] if len(frame) else frame
    return some.loc[some.groupby("form", sort=False)["result.nodes"].idxmax()] if len(some) else some


def revealed(run: Mapping[str, Any]) -> float:
    """Return what an attack recovers, the larger of two shares: of nodes in full, and of cross-client neighbours."""
    nodes = run["result.nodes"]
    return checks.worst_of((run["exact"] / nodes if nodes else math.nan, run["cross_client.recovered"]))


def attack_checks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the checks of the privacy claim for each form, and the controls.

    The claim holds if no share is `revealed`.
    """
    rows: list[checks.Row] = []
    for run in worst_attacks(frame).to_dict("records"):
        form, id_ = run["form"], "FG-I6" if run["form"] == "matrix" else "FG-I6-vector"
        statement = (
            f"{form.capitalize()} messages reveal sums only (share of nodes all of whose neighbours are recovered, or "
            f"of cross-client neighbours that are, the larger; {run['exact']:.0f} of {run['result.nodes']:.0f} nodes, "
            "lone neighbours kept)"
        )
        rows.append(checks.row(id_, statement, revealed(run), 0.0))
        # The control must recover nothing, unlike other controls, whose measured number must exceed the bound.
        share = frame.loc[(frame["form"] == form) & (frame["lone"] == "kept"), "control"].max()
        statement = "the same attack on messages about other features recovers these (largest share, which must be 0)"
        outcome = checks.CAUGHT if share == 0 else checks.MISSED
        rows.append(checks.row(f"{id_}-control", statement, share, 0.0) | {"verdict": outcome})
    return pd.DataFrame(rows, columns=list(checks.COLUMNS))


def cost_checks(frame: pd.DataFrame) -> list[dict[str, str]]:
    """Return the checks of FedGAT's round: its seconds relative to DistGAT's, and its memory.

    The smoke profile measures no memory.
    """
    seconds, mebibytes = "timing.seconds_per_round", "timing.peak_mebibytes"
    costs = frame.reindex(columns=["of", seconds, mebibytes]).set_index("of").astype(float)
    (_, ours), (_, cut) = costs.reindex(["FedGAT", "DistGAT"]).iterrows()
    ratio, gibibytes = ours[seconds] / cut[seconds], ours[mebibytes] / 1024
    statement = "a round of FedGAT over one of DistGAT, Cora, 10 clients, degree 16"
    return [
        checks.limit("FG-M1-time", statement, ratio, most=SLOWDOWN),
        checks.limit("FG-M1-memory", "FedGAT's largest memory in GiB, libraries included", gibibytes, most=GIBIBYTES),
    ]


def counterexamples(record: pd.Series) -> pd.DataFrame:
    """Return error and corrected bound as multiples of the printed bound.

    The columns are the case, the multiple, and what it is a multiple of.
    """
    cases = {
        "attention": "Theorem 3:\n20 neighbours,\nLeakyReLU",
        "embedding": "Theorem 4:\ntwo neighbours,\nidentity",
        "scores": "Eq. 15:\nReLU, x = 2",
    }
    parts = {"": "error", " bound": "bound as printed", " corrected": "bound as corrected"}
    rows = [
        (text, record[f"counterexamples.{case}{part}"] / record[f"counterexamples.{case} bound"], what)
        for case, text in cases.items()
        for part, what in parts.items()
    ]
    return pd.DataFrame(rows, columns=["case", "multiple of the printed bound", "what"])
