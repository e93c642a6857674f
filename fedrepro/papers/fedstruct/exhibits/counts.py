"""Make FedStruct's tables without training runs: messages, graphs, settings, partitions, generators and attacks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from fedrepro.data.shapes import SHAPES
from fedrepro.papers.fedstruct.exhibits.settings import SETTINGS, settings
from fedrepro.reporting.exhibits import published

STAGES = ("before.", "training.")
WIDTH = 256  # d_s of Table 5

# --- messages ----------------------------------------------------------------------------------------------------


def totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return counted messages with their sums: `before` training, in `training`, and `beside`, which leaves out theta.

    Theta is sent down and its gradient is sent up. Neither grows with the number of nodes, which is in `nodes`.
    """
    if frame.empty:
        return frame
    sums = {stage: frame.filter(regex=rf"^{stage}\.").sum(axis=1).astype(float) for stage in ("before", "training")}
    theta = 2.0 * frame["rounds"] * frame["sizes.K"] * frame["sizes.theta"]
    return frame.assign(nodes=frame["sizes.n"], beside=sums["before"] + sums["training"] - theta, **sums)


def messages(sent: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the scalars of each message, one row for each run, phase, direction and message.

    Args:
        sent: as `totals` returns it.
        by: columns that tell the runs apart.
    """
    names = [name for name in sent if str(name).startswith(STAGES)]
    long = sent.melt(list(by), names, "message", "scalars").dropna(subset=["scalars"])
    long[["phase", "direction", "message"]] = long["message"].str.split(".", n=2, expand=True)
    return long[[*by, "phase", "direction", "message", "scalars"]]


# --- graphs, settings, partitions and generators -----------------------------------------------------------------

COUNTS = ["classes", "nodes", "undirected_edges", "directed_edges", "self_loops", "features", "homophily"]
METRICS = {"edge homophily ratio": ("homophily",), "edges": ("undirected_edges", "directed_edges")}


def graphs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of every graph with `graph`: as in the file, or undirected without self-loops."""
    return frame.assign(graph=frame["prepare"].map({"": "as in the file"}).fillna("undirected, no self-loops"))


def sizes(counted: pd.DataFrame) -> pd.DataFrame:
    """Return Table 4's numbers with the count of ours that agrees with each, or else is nearest to it.

    Args:
        counted: as `graphs` returns it.
    """
    rows: list[dict[str, Any]] = []
    for cell in published("fedstruct").query("exhibit == 'FS-T4'").to_dict("records"):
        ours, metric = counted[counted["dataset"].eq(cell["dataset"])], cell["metric"]
        counts = {
            f"{name}, {graph}": value
            for name in METRICS.get(metric, (metric,))
            for graph, value in zip(ours["graph"], ours[name].astype(float).tolist())
        }
        digits = 2 if metric in METRICS and len(METRICS[metric]) == 1 else 0  # homophily is printed with two
        agreeing = [name for name, value in counts.items() if round(value, digits) == cell["value_number"]]
        state = "not run" if not counts else "agrees" if agreeing else "differs"
        nearest = min(counts, key=lambda name: abs(counts[name] - cell["value_number"])) if counts else ""
        which = agreeing[0] if agreeing else nearest
        told = {"published": cell["value"], "ours": counts.get(which), "which": which, "state": state}
        rows.append({"dataset": cell["dataset"], "metric": metric, **told})
    return pd.DataFrame(rows)


def compare_settings(counted: pd.DataFrame) -> pd.DataFrame:
    """Return the settings that Table 5 prints with ours, and whether they agree.

    The first and last width of a network follow from the graph.
    """
    names = {"weight decay": "weight_decay", "epochs": "epochs", "L": "depth", "L_s": "structure_depth"}
    rows = []
    for cell in published("fedstruct").query("exhibit == 'FS-T5'").to_dict("records"):
        chosen, metric = SETTINGS[cell["dataset"]], cell["metric"]
        graph = counted[counted["dataset"].eq(cell["dataset"])].iloc[:1]
        first, last = graph[["features", "classes"]].iloc[0].astype(int) if len(graph) else (None, None)
        ours: Any = {
            "layers of theta_f": [first, chosen.hidden, last],
            "layers of theta_s": [WIDTH, *chosen.structure_hidden, last],
            "d_s": WIDTH,
            "p": 30,
        }.get(metric) or getattr(chosen, names.get(metric, "lr"))
        text = str(ours).replace(" ", "")
        same = text == cell["value"] if isinstance(ours, list) else float(ours) == cell["value_number"]
        state = "graph not here" if "None" in text else "agrees" if same else "differs"
        told = {"setting": metric, "published": cell["value"], "ours": text, "state": state}
        rows.append({"dataset": cell["dataset"], **told})
    return pd.DataFrame(rows)


def partitions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return sizes of the smallest and largest part, the share of cut edges, and that of nodes without neighbours.

    The column `alone` is the share of nodes that have no neighbour at their client.
    """
    inner = frame["total_inner_edges"] / (frame["total_inner_edges"] + frame["cross_client_edges"])
    lone = [sum(isolated) / sum(nodes) for isolated, nodes in zip(frame["isolated_nodes"], frame["nodes"])]
    sizes = {"smallest": frame["nodes"].map(min), "largest": frame["nodes"].map(max)}
    return frame[["dataset", "partition", "seed"]].assign(
        clients=frame["result.clients"], **sizes, cut=1 - inner, alone=lone
    )


GENERATORS = {"Deg": "Deg", "GDV": "GDV", "N2V": "Node2Vec", "Fed*": "Fed*", "H2V": "Hop2Vec"}
PROPERTIES = ["task_dependent", "global", "local", "settings", "seconds"]
NODE2VEC_EPOCHS = 50  # one of them is timed
FAST, FEW_SETTINGS = 10.0, 3  # limits of Table 3's marks: seconds, and the number of settings


def generators(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the measured properties of every generator of structure features, on each graph."""
    rows = [
        [run["dataset"], name, *(run[f"{kind}.{prop}"] for prop in PROPERTIES)]
        for run in frame.to_dict("records")
        for kind, name in GENERATORS.items()
    ]
    return pd.DataFrame(rows, columns=["dataset", "generator", *PROPERTIES])


def marks(measured: pd.DataFrame) -> pd.DataFrame:
    """Return Table 3's marks from the first graph: one row a property, one column a generator."""
    first = measured[measured["dataset"].eq(measured["dataset"].iloc[0])].set_index("generator")
    epochs = pd.Series({"Node2Vec": NODE2VEC_EPOCHS}).reindex(first.index, fill_value=1)
    told = {
        "task dependent": first["task_dependent"],
        "global properties": first["global"],
        "fast": first["seconds"] * epochs < FAST,
        "no parameter tuning": first["settings"] <= FEW_SETTINGS,
        "locally computable": first["local"],
    }
    return pd.DataFrame(told).T


# --- privacy -----------------------------------------------------------------------------------------------------

SOLVED = ["equations", "unknowns", "prevented", "rank", "nullity", "error", "recovered"]
COLLUDED = ["labelled", "hidden", "broken", "rank", "determined"]
VIEWS = {"combined": "its rows of Ā", "powers": "its rows of each power", "blocks": "blocks of power 2"}
RANKED = ["auc", "precision", "density", "self", "between"]
READ = ["train", "other", "gradient", "nearest", "majority", "test"]
HEADS = {"direct": "Hop2Vec (Eq. 49)", "mlp": "with g (Eq. 47)"}


def counting(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of equations, unknowns and errors of the best reconstruction (FS-I5)."""
    held = (f"result.{name}" if f"result.{name}" in frame else name for name in SOLVED)
    return frame.groupby(["head", "queries", "observers"], as_index=False)[
        [name for name in held if name in frame]
    ].mean()


def colluding(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of the counts in G.1's condition (FS-I5-graphs).

    Client 1 is all clients but one together, or a single client.

    The columns `sums` and `derivatives` hold equations over unknowns with Table 5's g and d_s: c |V~_1| of Eq. 47, and
    c |theta_s| |V~_1| of Eq. 48, over m d_s. The text's condition is that this is below one.
    """
    sides = {"all but one": "together", "one": "alone"}
    long = pd.concat(
        frame[["dataset"]].assign(client_1=who, **{name: frame[f"{side}.{name}"] for name in COLLUDED})
        for who, side in sides.items()
    )
    table = long.groupby(["dataset", "client_1"], as_index=False, sort=False).mean()
    classes = table["dataset"].map(lambda name: len(SHAPES[name.removesuffix("~standin")].classes))
    sums = classes * table["labelled"] / (WIDTH * table["hidden"])
    return table.assign(sums=sums, derivatives=sums * [weights_of_g(*each) for each in zip(table["dataset"], classes)])


def weights_of_g(dataset: str, classes: int) -> int:
    """Return |theta_s|, the weights and biases of the layers that Table 5 gives g."""
    layers = pairwise([WIDTH, *settings(dataset).structure_hidden, classes])
    return sum((before + 1) * after for before, after in layers)


def edge_attacks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the attacks on edges with `pruning`, the name of their p."""
    return frame.assign(pruning=frame["prune"].map(lambda p: "full" if p == 0 else f"p = {p}"))
