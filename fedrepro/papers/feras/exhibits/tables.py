"""Feras: its tables in the paper's names and layout.

A score is the mean over hosts of their F1-micro on all test nodes (accuracy where a node has one label), at the round
of best validation, before local training. Graphs that the paper does not use have nothing published beside them, and
a stand-in keeps its own name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedrepro.reporting import compare, published

if TYPE_CHECKING:
    import pandas as pd

ISOLATED, SHARED, FERAS = METHODS = ("GraphSAINT", "GraphSAINT-SW", "Feras")
SAMPLERS = {"node": "Node", "edge": "Edge", "rw": "RW", "mrw": "MRW"}
HOSTS = (3, 5)
PAPERS_GRAPHS = ("PPI", "Flickr", "Reddit")
SCORE, VAL = "before.best.test_clients", "before.best.val_clients"
TRAFFIC = ("up.weights", "down.weights", "up.embeddings", "down.embeddings")
FACTS = ("test_seen", "test_unseen", "fresh", "held")
RUNS_PUBLISHED = 4  # "more than three rounds"
CELL = ["dataset", "kappa", "hosts"]


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs under the paper's names: `row`, `setting`, `kappa` (percent), `hosts`, `score` and `val`."""
    frame = frame.copy()
    for name in ("dataset", "method", "sampler", "partition", "clients", "seed", SCORE, VAL):
        if name not in frame:
            frame[name] = None
    text = {name: frame[name].astype(str) for name in ("dataset", "method", "sampler", "partition")}
    share = text["partition"].str.extract(r"kappa=([\d.]+)\)")[0].astype(float)
    frame["kappa"] = (100 * share).round().astype("Int64")
    frame["hosts"] = frame["clients"].astype("Int64")
    alone = text["method"].eq(ISOLATED)
    hosts = " (N=" + frame["hosts"].astype(str) + ")"
    frame["row"] = (text["method"] + hosts).mask(alone, text["method"] + "-" + text["sampler"].replace(SAMPLERS))
    frame["setting"] = "kappa=" + frame["kappa"].astype(str) + "%"
    frame["score"], frame["val"] = frame[SCORE].astype(float), frame[VAL].astype(float)
    return frame


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Of every cell (graph, kappa, hosts) and method the runs of the sampler with the highest mean validation score.

    All methods of a cell choose among the same samplers, those that each of them has been run with, on as many seeds
    as any of these (FR-S2): a method with four samplers stored is not compared at its best with one that has one. A
    cell without a sampler that all its methods have is left out.
    """
    import pandas as pd

    kept = []
    for _, cell in frame.groupby(CELL, sort=False):
        runs = cell.groupby(["sampler", "method"], sort=False).size().unstack(fill_value=0).min(axis=1)
        level = runs.index[runs.eq(runs.max()) & runs.gt(0)]
        for _, group in cell[cell["sampler"].isin(level)].groupby("method", sort=False):
            best = group.groupby("sampler", sort=False)["val"].mean().idxmax()
            kept.append(group[group["sampler"] == best])
    return pd.concat(kept) if kept else frame.iloc[:0]


def table2(frame: pd.DataFrame) -> pd.DataFrame:
    """FR-T2 in the paper's rows, one row per cell: published and ours with its verdict; then our other graphs.

    Isolated rows are held against three hosts (FR-Q5: the number is not stated). A cell of a stand-in or of a graph
    the paper does not use has nothing published and no verdict.
    """
    import pandas as pd

    paper = published.load("feras").query("exhibit == 'FR-T2'")
    paper = paper.assign(row=_published_rows(paper), setting=paper["setting"].str.extract(r"(kappa=\d+%)")[0])
    ours, best = frame[frame["method"].eq(ISOLATED)], chosen(frame)
    ours = pd.concat([ours[ours["hosts"].eq(3)], best[best["method"].ne(ISOLATED)]])
    on = ["dataset", "row", "setting"]
    real = ours[ours["dataset"].isin(PAPERS_GRAPHS)]
    judged = compare.table(real, paper, on=on, value="score", runs_published=RUNS_PUBLISHED)
    groups = ours[~ours["dataset"].isin(PAPERS_GRAPHS)].groupby([*on, "method", "partition"], sort=False)
    rest = groups["score"].agg(ours_mean="mean", ours_sd="std", runs="count").reset_index()
    rest = rest.assign(exhibit="FR-T2", metric="F1-micro", verdict="", why="the paper does not use this graph")
    standin = rest["dataset"].astype(str).str.endswith("~standin")
    rest.loc[standin, ["verdict", "why"]] = [compare.NOT_COMPARABLE, "measured on a stand-in"]
    table = pd.concat([judged, rest], ignore_index=True)
    samplers = ours.groupby(on)["sampler"].first().map(SAMPLERS)
    table["sampler"] = [samplers.get(key) for key in table[on].itertuples(index=False, name=None)]
    return table


def _published_rows(paper: pd.DataFrame) -> pd.Series:
    alone = paper["clients"].eq("")
    return paper["method"].where(alone, paper["method"] + " (N=" + paper["clients"] + ")")


def layout(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's layout: kappa and method down, graphs across, `ours (runs) [published] mark`."""
    from fedrepro.reporting.figures import MARKS

    def text(cell: dict[str, Any]) -> str:
        ours = "" if math.isnan(cell["ours_mean"]) else f"{cell['ours_mean']:.3f} ({cell['runs']:.0f})"
        known = isinstance(cell["published"], str) and cell["published"] != ""
        parts = (ours, f"[{cell['published']}]" if known else "", MARKS.get(str(cell["verdict"]), "") if ours else "")
        return " ".join(part for part in parts if part)

    cells = table.assign(cell=[text(row) for row in table.to_dict("records")])
    wide = cells.pivot_table(index=["setting", "row"], columns="dataset", values="cell", aggfunc="first", sort=False)
    return wide.fillna("")


def means(frame: pd.DataFrame, by: Sequence[str], value: str = "score") -> pd.DataFrame:
    """Mean, standard deviation and number of runs of `value` for every combination of `by`."""
    groups = frame.groupby(list(by), sort=False)[value]
    return groups.agg(mean="mean", sd="std", runs="count").reset_index()


def sizes(frame: pd.DataFrame) -> pd.DataFrame:
    """FR-T1: what is printed of each graph beside what `statistics.summarize` counts; `agrees` on the paper's graphs.

    The printed edges count both directions of Flickr's and one of the others'; either is accepted.
    """
    import pandas as pd

    paper = published.load("feras").query("exhibit == 'FR-T1'")
    printed = paper.pivot(index="dataset", columns="metric", values="value_number")
    parts_of_one = {"train": "train", "validation": "val", "test": "test"}
    rows: list[dict[str, Any]] = []
    for row in frame.to_dict("records"):
        name, nodes = str(row["dataset"]), row["nodes"]
        ours = {"nodes": nodes, "features": row["features"], "classes": row["classes"]}
        ours |= {text: round(row[part] / nodes, 2) for text, part in parts_of_one.items()}
        edges = (row["undirected_edges"], row["directed_edges"])
        known = printed.loc[name] if name in printed.index else None
        agrees = None
        if known is not None:
            agrees = all(known[text] == value for text, value in ours.items()) and known["edges"] in edges
        counts = {"undirected edges": edges[0], "directed edges": edges[1]}
        degree = 2 * edges[0] / nodes
        rows.append({"dataset": name, **ours, **counts, "degree": degree, "agrees with the paper": agrees})
    rows += [
        {"dataset": f"{name} (printed)", **numbers.drop(["edges", "degree"]), "edges": numbers["edges"],
         "degree": numbers["degree"]}
        for name, numbers in printed.iterrows()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    whole = [name for name in table if name not in ("dataset", "degree", "agrees with the paper", *parts_of_one)]
    return table.astype(dict.fromkeys(whole, "Int64"))


def messages(frame: pd.DataFrame) -> pd.DataFrame:
    """FR-F2: what a host sends and receives in an epoch, in scalars, as counted in the runs of each method."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for row in frame.to_dict("records"):
        epochs, hosts = int(row["rounds"] * row["local_epochs"]), int(row["hosts"])
        counts = {name: row.get(f"traffic.training.{name}") for name in TRAFFIC}
        each = {name: 0.0 if count is None or math.isnan(count) else count for name, count in counts.items()}
        kept = {name: row[name] for name in ("dataset", "method", "hosts", "kappa", "hidden", "seed")}
        rows.append(kept | {name: count / epochs / hosts for name, count in each.items()})
    table = pd.DataFrame(rows, columns=["dataset", "method", "hosts", "kappa", "hidden", "seed", *TRAFFIC])
    groups = table.groupby(["dataset", "method", "hosts", "kappa", "hidden"], sort=False)
    return groups[list(TRAFFIC)].mean().assign(runs=groups["seed"].count()).reset_index()


def visible(frame: pd.DataFrame) -> pd.DataFrame:
    """FR-P1: nodes of the hosts in every partition, and the share of the graph they cannot see beside kappa."""
    import pandas as pd

    from fedrepro.data.shapes import SHAPES

    rows: list[dict[str, Any]] = []
    for row in named(frame).to_dict("records"):
        total = SHAPES[str(row["dataset"]).removesuffix("~standin")].nodes
        held = [int(count) for count in row["nodes"]]
        hosts, kappa = int(row["hosts"]), int(row["kappa"])
        rows.append({
            "dataset": row["dataset"], "hosts": hosts, "kappa": kappa, "private (percent)": kappa * hosts / (hosts - 1),
            "fewest nodes": min(held), "most nodes": max(held), "unseen": 1 - sum(held) / hosts / total,
            "off by (nodes)": max(abs(total * (1 - kappa / 100) - count) for count in held), "runs": 1,
        })  # fmt: skip
    return pd.DataFrame(rows)


def by_reading(frame: pd.DataFrame, reading: Mapping[str, str]) -> pd.DataFrame:
    """FR-T2-readings: score per graph, reading and method, and what the reading changes on the same seeds.

    Args:
        frame: runs under the paper's names.
        reading: of each run's key; "main" for what the others are held against.
    """
    import pandas as pd

    scored = frame.assign(reading=frame["key"].map(reading))
    groups = {name: group.set_index("seed") for name, group in scored.groupby(["dataset", "method", "reading"])}
    rows: list[dict[str, Any]] = []
    for dataset, text, method in dict.fromkeys(zip(scored["dataset"], scored["reading"], scored["method"])):
        group, main = groups[dataset, method, text], groups.get((dataset, method, "main"))
        change = math.nan if main is None or text == "main" else float((group["score"] - main["score"]).mean())
        facts = {name: group[f"facts.{name}"].mean() for name in FACTS if f"facts.{name}" in group}
        rows.append({
            "dataset": dataset, "reading": text, "method": method, "F1-micro": group["score"].mean(),
            "runs": len(group), "change": change, **facts,
        })  # fmt: skip
    return pd.DataFrame(rows)


PROMISES = {
    "timing.seconds_per_epoch": ("an epoch of 5 hosts on PPI's size, hidden 256 (seconds)", 3.0),
    "timing.median_ratio": (
        "an iteration of 3, 5, 10 hosts that together draw as many nodes: slowest median over fastest",
        1.3,
    ),
    "timing.peak_mebibytes": ("memory of an epoch on Reddit's size (mebibytes)", 6144.0),
}


def promises(frame: pd.DataFrame) -> list[dict[str, str]]:
    """Rows of checks: what was timed on stand-ins of the paper's sizes against what the suite promises."""
    sized = frame[frame["dataset"].isin([f"{name}~standin" for name in PAPERS_GRAPHS])]
    return [
        compare.limit(f"FR-speed-{place}", statement, sized[name].max() if name in sized else None, most=bound)
        for place, (name, (statement, bound)) in zip("abc", PROMISES.items())
    ]
