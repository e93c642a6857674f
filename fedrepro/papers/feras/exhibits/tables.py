"""Feras's tables in the paper's names and layout.

A score is the mean over hosts of their F1-micro on all test nodes (accuracy where a node has one label). It is taken at
the round of best validation, before local training. Graphs that the paper does not use have nothing published next to
them, and a stand-in keeps its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.data.shapes import SHAPES
from fedrepro.papers.feras.exhibits import grids
from fedrepro.papers.feras.exhibits.grids import FERAS, ISOLATED, METHODS
from fedrepro.reporting import compare, frames, rule
from fedrepro.reporting.exhibits import published
from fedrepro.reporting.layout import MARKS
from fedrepro.reporting.statistics import Interval, mean_gap, over_runs
from fedrepro.runs.run import Run

SCORE, VAL = "before.best.test_clients", "before.best.val_clients"
TRAFFIC = ["up.weights", "down.weights", "up.embeddings", "down.embeddings"]
MESSAGES = dict(zip(TRAFFIC, ("weights sent", "weights received", "embeddings sent", "embeddings received")))
FACTS = ["test_seen", "test_unseen", "fresh", "held"]
CELL = ["dataset", "kappa", "hosts"]


def prepare(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return the runs of an exhibit under the paper's names; checks and attacks stay as they are.

    Runs on hosts get `row`, `setting`, `kappa` (percent), `hosts`, `score` and `val`.
    """
    if grids.GRIDS[exhibit_id].task not in ("train", "partition"):
        return frame
    needed = ("dataset", "method", "sampler", "partition", "clients", "seed", SCORE, VAL)
    frame = frame.assign(**{name: None for name in needed if name not in frame})
    text = {name: frame[name].astype(str) for name in ("method", "sampler", "partition")}
    frame["kappa"] = (100 * share_unseen(frame)).round().astype("Int64")
    frame["hosts"] = frame["clients"].astype("Int64")
    isolated = text["method"].eq(ISOLATED)
    hosts = " (N=" + frame["hosts"].astype(str) + ")"
    frame["row"] = (text["method"] + hosts).mask(
        isolated, text["method"] + "-" + text["sampler"].replace(grids.SAMPLERS)
    )
    frame["setting"] = "kappa=" + frame["kappa"].astype(str) + "%"
    frame["score"], frame["val"] = frame[SCORE].astype(float), frame[VAL].astype(float)
    return frame


def share_unseen(frame: pd.DataFrame) -> pd.Series:
    """Return kappa, the share of nodes that a host cannot see, from the partition of each run."""
    return frame["partition"].astype(str).str.extract(r"kappa=([\d.]+)\)")[0].astype(float)


def real(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are not of a stand-in."""
    return frame[~frame["dataset"].astype(str).str.endswith("~standin")]


def drawn(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a figure shows: those of real graphs, or all where there are none, as in a smoke run."""
    kept = real(frame)
    return kept if len(kept) else frame


def with_lines(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with `line`: the method and its number of hosts."""
    return frame.assign(line=frame["method"] + ", N=" + frame["hosts"].astype(str))


def random_walk(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the random walk, the one sampler that all methods have in all repetitions (FR-S2)."""
    return frame[frame["sampler"].eq("rw")] if len(frame) else frame


def main_reading(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """Return the runs of Table 2: isolated ones with three hosts (FR-Q5), the others with the random walk (FR-S2)."""
    isolated, shared = frame[frame["method"].eq(ISOLATED)], random_walk(frame[frame["method"].ne(ISOLATED)])
    return pd.concat([isolated[isolated["hosts"].eq(3)], shared])


def printed_rows(paper: pd.DataFrame) -> pd.DataFrame:
    """Return printed numbers of Table 2 with `row`, the method and its hosts, and the share kappa as `setting`."""
    hosts = (" (N=" + paper["clients"] + ")").mask(paper["clients"].eq(""), "")
    return paper.assign(row=paper["method"] + hosts, setting=paper["setting"].str.extract(r"(kappa=\d+%)")[0])


def table2(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 2 in the paper's rows: published and ours with its verdict, then our other graphs.

    Isolated rows are those of three hosts, as the paper does not state the number (FR-Q5). A cell of a stand-in, or of
    a graph that the paper does not use, has nothing published and no verdict.
    """
    paper = printed_rows(published("feras").query("exhibit == 'FR-T2'"))
    ours = main_reading(frame, "FR-T2")
    on = ["dataset", "row", "setting"]
    printed = ours["dataset"].isin(grids.PUBLISHED)
    judged = compare.judge_table(ours[printed], paper, on=on, value="score")
    groups = ours[~printed].groupby([*on, "method", "partition"], sort=False)
    rest = groups["score"].agg(ours_mean="mean", ours_sd="std", runs="count").reset_index()
    rest = rest.assign(exhibit="FR-T2", metric="F1-micro", verdict="", why="the paper does not use this graph")
    standin = rest["dataset"].astype(str).str.endswith("~standin")
    rest.loc[standin, ["verdict", "why"]] = [rule.NOT_TESTED, "measured on a stand-in"]
    table = pd.concat([judged, rest], ignore_index=True)
    used = ours.groupby(on)["sampler"].first().map(grids.SAMPLERS)
    return table.assign(sampler=[used.get(key) for key in table[on].itertuples(index=False, name=None)])


def layout(table: pd.DataFrame) -> pd.DataFrame:
    """Return Table 2 as the paper prints it, F1 as fractions, with cells `ours (runs) [published] mark`."""

    def text(cell: Any) -> str:
        ours = "" if math.isnan(cell.ours_mean) else f"{cell.ours_mean:.3f} ({cell.runs:.0f})"
        known = isinstance(cell.published, str) and cell.published != ""
        parts = (ours, f"[{cell.published}]" if known else "", MARKS.get(str(cell.verdict), "") if ours else "")
        return " ".join(part for part in parts if part)

    table = table.assign(dataset=table["dataset"].astype(str) + " (fraction)")
    return frames.paper_layout(table, ["setting", "row"], "dataset", text).fillna("").set_index(["setting", "row"])


def means(frame: pd.DataFrame, by: list[str], value: str = "score") -> pd.DataFrame:
    """Return mean, standard deviation (`sd`) and number of runs of a score for every combination of `by`."""
    return frames.means(frame, by, value).rename(columns={"std": "sd"})


PARTS = {"train": "train", "validation": "val", "test": "test"}


def sizes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the printed sizes of each graph (FR-T1) and those counted here; `agrees` for the paper's graphs.

    The printed edges count both directions for Flickr and one for the others; either is accepted.
    """
    paper = published("feras").query("exhibit == 'FR-T1'")
    printed = paper.pivot(index="dataset", columns="metric", values="value_number")
    graphs = frame.set_index("dataset")
    shares = {text: (graphs[part] / graphs["nodes"]).round(2) for text, part in PARTS.items()}
    ours = graphs[["nodes", "features", "classes"]].assign(**shares)
    known, edges = printed.reindex(graphs.index), graphs[["undirected_edges", "directed_edges"]]
    agrees = ours.eq(known[list(ours)]).all(axis=1) & edges.eq(known["edges"], axis=0).any(axis=1)
    counts = edges.rename(columns=lambda name: name.replace("_", " "))
    counts["degree"] = 2 * edges["undirected_edges"] / graphs["nodes"]
    ours = ours.join(counts).assign(**{"agrees with the paper": agrees.where(graphs.index.isin(printed.index), None)})
    table = pd.concat([ours, printed.rename(index="{} (printed)".format)]).rename_axis("dataset").reset_index()
    whole = [name for name in table if name not in ("dataset", "degree", "agrees with the paper", *PARTS)]
    return table.astype(dict.fromkeys(whole, "Int64"))


def messages(frame: pd.DataFrame, by: list[str] | None = None) -> pd.DataFrame:
    """Return the scalars that a host sends and receives in an epoch (FR-F2), means over runs that agree in `by`."""
    by = by or ["dataset", "method", "hosts", "kappa", "hidden"]
    per = frame["rounds"].astype(float) * frame["local_epochs"].astype(float) * frame["hosts"].astype(float)
    counts = {name: frame.get(f"traffic.training.{name}", 0.0 * per).fillna(0.0) / per for name in TRAFFIC}
    return frames.means(frame.assign(**counts), by, TRAFFIC)


def visible(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the nodes of the hosts in every partition, and the share of the graph that they cannot see (FR-P1)."""
    total = frame["dataset"].str.removesuffix("~standin").map(lambda name: SHAPES[name].nodes)
    hosts, kappa = frame["hosts"].astype(int), frame["kappa"].astype(int)
    fewest, most = frame["nodes"].map(min), frame["nodes"].map(max)
    seen = total * (1 - kappa / 100)
    counts = {
        "private (percent)": kappa * hosts / (hosts - 1),
        "fewest nodes": fewest,
        "most nodes": most,
        "unseen": 1 - frame["nodes"].map(sum) / hosts / total,
        "off by (nodes)": pd.concat([(seen - fewest).abs(), (seen - most).abs()], axis=1).max(axis=1),
    }
    return frame[["dataset"]].assign(hosts=hosts, kappa=kappa, **counts, runs=1)


def readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the score per graph, reading and method, and what a reading changes on the same seeds.

    `change` is over the reading in `against`, from which it departs in one thing: the main one, or what
    `settings.toml` names. A score on visible nodes is thus compared with one on visible nodes.
    """
    against = {text: row.get("against", grids.MAIN) for text, row in grids.TABLES["readings"].items()}
    scored = frame.assign(reading=frame["key"].map(grids.reading_of()))
    scored["against"] = scored["reading"].map({grids.MAIN: "", **against})
    usual = scored[["dataset", "method", "seed", "reading", "score"]].rename(columns={"reading": "against"})
    scored = scored.merge(usual, how="left", on=["dataset", "method", "seed", "against"], suffixes=("", "_against"))
    scored["change"] = scored["score"] - scored["score_against"]
    facts = {name: (f"facts.{name}", "mean") for name in FACTS if f"facts.{name}" in scored}
    groups = scored.groupby(["dataset", "reading", "method"], sort=False)
    means = {"F1-micro": ("score", "mean"), "runs": ("seed", "size"), "against": ("against", "first")}
    return groups.agg(**means, change=("change", "mean"), **facts).reset_index()


TOLD = ["cosine", "relative_error", "recovered", "entries", "control_cosine", "equations_per_feature"]
TOLD += ["residual", "converged"]


def attacks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the attacks with kappa, the number of messages, their dropout, and the line and point in the figure."""
    frame = _attacked(frame)
    frame["entries"] = frame.get("entries", math.nan)  # of attacks under dropout
    frame["converged"] = frame["converged"].astype(float)
    told = frame["observations"].map(lambda count: f", {count} messages" if count > 1 else "")
    told += frame["dropout"].map(lambda share: f", dropout {share:g}" if share else "")
    frame["line"] = "depth " + frame["depth"].astype(str) + ", kappa " + frame["kappa"].astype(str) + "%" + told
    groups = frame.groupby(ATTACK, sort=False)
    return frame.assign(**{"equations per unknown": groups["equations_per_feature"].transform("mean")})


ATTACK = ["dataset", "kappa", "depth", "hidden", "dropout", "observations"]


def _attacked(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with kappa (percent), dropout and number of messages, which are 0 and 1 where none is given."""
    kappa = (100 * share_unseen(frame)).round().astype(int)
    observations = frame["observations"].fillna(1).astype(int) if "observations" in frame else 1
    dropout = frame["dropout"].fillna(0.0).astype(float) if "dropout" in frame else 0.0
    return frame.assign(kappa=kappa, observations=observations, dropout=dropout)


def not_attacked(leak: pd.DataFrame, runs: Sequence[Run]) -> list[str]:
    """Return sentences on what the table of attacks lacks: each names the settings, such as the width, without a run.

    The first sentence has the settings of FR-privacy's list without a run. The second has those with only messages
    under dropout, for which no clean message was attacked.

    Args:
        leak: the stored runs, as `attacks` returns them.
        runs: those that the exhibit lists.
    """
    listed = _attacked(pd.DataFrame([{"dataset": r.dataset, "partition": r.partition, **r.options} for r in runs]))
    wanted, held = ([*dict.fromkeys(rows[ATTACK].itertuples(index=False, name=None))] for rows in (listed, leak))
    absent = [setting for setting in wanted if setting not in held]
    alone = [setting for setting in held if setting[4] and (*setting[:4], 0.0, setting[5]) not in held]
    starts = "Listed, and not computed yet", "Attacked under dropout only, so that no clean row stands beside it"
    return [
        f"{start}: {'; '.join(map(_setting, settings))}."
        for start, settings in zip(starts, (absent, alone))
        if settings
    ]


def _setting(setting: tuple[Any, ...]) -> str:
    """Return one setting of `ATTACK` in words."""
    dataset, kappa, depth, width, dropout, count = setting
    messages = "1 message" if count == 1 else f"{count} messages"
    told = f"dropout {dropout:g}" if dropout else "clean"
    return f"{dataset}, kappa {kappa}%, depth {depth}, width {width}, {messages} ({told})"


# --- the gain of sharing -----------------------------------------------------------------------------------------

GAINS = [(METHODS[2], METHODS[0]), (METHODS[2], METHODS[1]), (METHODS[1], METHODS[0])]


def gains_by_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the gain of each method that shares over isolation, in points, per graph, kappa, hosts and seed.

    All methods have the random walk (FR-S2).
    """
    scores = random_walk(frame).pivot_table(index=[*CELL, "seed"], columns="method", values="score", sort=False)
    scores = scores.reindex(columns=METHODS)
    gains = 100 * scores[list(METHODS[1:])].sub(scores[ISOLATED], axis=0)
    return gains.stack().rename("gain").reset_index()


def gains(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the gains of Feras over isolation and shared weights, and of these over isolation (FR-Q1).

    Ours are means over common seeds with an interval; the printed ones have the root of the summed squared spreads.
    Ours are with the random walk for all methods (FR-S2). The paper's are over the isolated row of the highest printed
    score, which has no number of hosts.
    """
    keys = ["dataset", "setting", "hosts", "gain"]
    ours = paired_gains(random_walk(frame), CELL, "score")
    ours = ours.assign(setting="kappa=" + ours["kappa"].astype(str) + "%").rename(columns={"mean": "ours"})
    return ours[[*keys, "ours", "low", "high", "runs"]].merge(published_gains(), how="outer", on=keys, sort=False)


def paired_gains(frame: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """Return the gains of `GAINS` in a score over common seeds, for each combination of `keys`.

    Returns:
        `keys`, the `gain` ("Feras over GraphSAINT"), its mean with the ends of its 95% interval, and the common `runs`.
    """
    rows = []
    for key, cell in frame.groupby(keys, sort=False):
        scores = {method: frames.scores(cell, {"method": method}, value) for method in METHODS}
        rows += [[*key, f"{a} over {b}", *mean_gap(scores[a], scores[b])] for a, b in GAINS]
    return pd.DataFrame(rows, columns=[*keys, "gain", *Interval._fields])


def kappa_slopes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how much Feras's gain grows with kappa: one row for each graph, other method and seed (FR-F4).

    The gain at each kappa is the mean over the numbers of hosts, in points. `slope` is its least-squares slope per 10%
    of kappa. A seed counts only if it has every kappa and number of hosts that the graph has.
    """
    return _slopes(frame, "over", {other: (FERAS, other) for other in METHODS[:2]})


def score_slopes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how each method's own score changes with kappa, as `kappa_slopes` does for the gain."""
    return _slopes(frame, "method", {method: (method,) for method in METHODS})


def _slopes(frame: pd.DataFrame, column: str, lines: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return the slopes of some lines, named in `column`: of a method's score, or of its lead over another method."""
    rows = []
    for dataset, runs in frame.groupby("dataset", sort=False) if len(frame) else ():
        scores = 100 * runs.pivot_table(index="seed", columns=["method", "kappa", "hosts"], values="score")
        for name, (first, *base) in lines.items():
            if {first, *base} <= set(scores.columns.get_level_values("method")):
                values = scores[first] - scores[base[0]] if base else scores[first]
                means = values.dropna().T.groupby(level="kappa").mean()  # [kappas, seeds]
                if len(means) > 1 and means.size:
                    slopes = np.polyfit(means.index.to_numpy(dtype=float) / 10, means.to_numpy(dtype=float), 1)[0]
                    rows += [[dataset, name, *each] for each in zip(means.columns, slopes)]
    return pd.DataFrame(rows, columns=["dataset", column, "seed", "slope"])


def slope_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means of `kappa_slopes` over seeds with their 95% interval, in points per 10% of kappa."""
    table = over_runs(kappa_slopes(frame), ["dataset", "over"], "slope")
    named = table.rename(columns={"mean": "slope", "count": "runs"})
    return named[["dataset", "over", "slope", "low", "high", "runs"]]


def published_gains() -> pd.DataFrame:
    """Return the gains in the paper's Table 2: `published` and `published_spread`."""
    paper = printed_rows(published("feras").query("exhibit == 'FR-T2'"))
    rows = []
    for (dataset, setting), cells in paper.groupby(["dataset", "setting"], sort=False):
        isolated = cells[cells["clients"].eq("")]
        best = {ISOLATED: isolated.loc[isolated["value_number"].idxmax()]}
        for hosts in grids.HOSTS:
            row = best | dict(cells[cells["clients"].eq(str(hosts))].set_index("method").iterrows())
            for a, b in GAINS:
                spread = math.hypot(row[a]["spread_number"], row[b]["spread_number"])
                value = row[a]["value_number"] - row[b]["value_number"]
                rows.append([dataset, setting, hosts, f"{a} over {b}", value, spread])
    return pd.DataFrame(rows, columns=["dataset", "setting", "hosts", "gain", "published", "published_spread"])
