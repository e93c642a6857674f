"""The ablations of FedSheafHN: modules, networks, readings, new and malicious clients, and the cost of the server."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits.settings import ABLATED, ARXIV, ATTACKS, CHOICES, OURS, READINGS, STANDIN
from fedrepro.papers.fedsheafhn.exhibits.tables import CELL, blank, printed
from fedrepro.reporting import compare, frames
from fedrepro.reporting.checks import Row, limit
from fedrepro.reporting.claims import LEVEL, judge_interval
from fedrepro.reporting.statistics import Interval, interval, mean_gap
from fedrepro.runs.run import Run

# The columns of a stage of Figure 3, see `theory.diffusion.trace`.
STAGES = ("stage", "neighbours", "others", "step", "energy", "map_size", "map_spread")
# Groups of clients in Figure 5: trained; new, after their local epochs; new, as received; new, without the server.
NEWCOMERS = {
    "trained": "train_test",
    "new": "new_test",
    "new, as received": "new_received",
    "new, alone": "new_alone",
}
SPREAD, HOLM = "generated_spread", "p, Holm"
SERVER_SECONDS, GROWTH = "server seconds per round", "server time above 20 clients (percent)"
TIMINGS = ("server_seconds", "round_seconds", "peak_mebibytes")


def intervals(gaps: pd.Series, name: str) -> pd.DataFrame:
    """Return mean and 95% interval over seeds, the last level of the index: `name`, `name, low`, `name, high`."""
    levels = list(gaps.index.names[:-1])
    ends = {key: interval(group.to_numpy())[:3] for key, group in gaps.dropna().groupby(level=levels, sort=False)}
    index = pd.MultiIndex.from_tuples(list(ends), names=levels) if ends else gaps.index[:0].droplevel(-1)
    return pd.DataFrame(list(ends.values()), index=index, columns=[name, f"{name}, low", f"{name}, high"])


# --- Tables 4 and 5 ----------------------------------------------------------------------------------------------


def beside_published(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return Table 4 or 5: published and ours on ogbn-arxiv, and ours on the other graphs."""
    paper = printed(exhibit_id)
    parts = [paper.assign(dataset=ARXIV)]
    for dataset in ABLATED:
        if dataset != ARXIV:  # Nothing is published for it.
            parts.append(paper.assign(dataset=dataset, value="", value_number=math.nan))
    frame = frame.assign(method=frame["row"])
    paper = pd.concat(parts, ignore_index=True)
    return compare.judge_table(frame, paper, on=CELL, value="percent")


def distances(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how far the weights generated for different clients differ: mean, lowest and highest run of each `by`."""
    spread = f"facts.{SPREAD}"
    names = {SPREAD: "mean", f"{SPREAD}_low": "min", f"{SPREAD}_high": "max"}
    return frame.reindex(columns=[*by, spread]).astype({spread: float}).groupby(list(by))[spread].agg(**names)


def with_distance(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 5 with the columns of `distances`.

    A stand-in is shown in the cells of its graph where no run on the real data exists, as in `compare.judge_table`.
    """
    spreads = distances(frame.assign(method=frame["row"]), CELL).reset_index().astype({"dataset": str, "clients": str})
    graph = spreads["dataset"].str.removesuffix("~standin")
    spreads = spreads.assign(dataset=graph, standin=graph.ne(spreads["dataset"])).sort_values("standin")
    return table.merge(spreads.drop_duplicates(CELL).drop(columns="standin"), "left", on=CELL)


def reading_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation of each reading, and its paired difference to Table 1 in points (SH-M2).

    The p-values are those of `chance` and `together`, over all rows but the first, which is Table 1 itself. The last
    columns are those of `distances`.
    """
    first = next(iter(READINGS))
    usual = frames.scores(frame, {"row": first}, "percent")
    table = frame.groupby("row", sort=False)["percent"].agg(["mean", "std", "count"])
    table.columns = ["percent_mean", "percent_sd", "runs"]
    gaps = [mean_gap(frames.scores(frame, {"row": row}, "percent"), usual) for row in table.index]
    table = table.join(pd.DataFrame([gap[:3] for gap in gaps], table.index, ["minus SH-T1", "low", "high"]))
    table["p"] = [math.nan if row == first else chance(gap) for row, gap in zip(table.index, gaps, strict=True)]
    table[HOLM] = together(table["p"])
    return table.join(distances(frame, ["row"]))


def choice_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of each method with Table 1's choice and with the other one, paired over seeds (SH-M3).

    The p-values are those of `chance`, and of `together` over the rows of one choice.
    """
    options = [name for changed in CHOICES.values() for name in changed]
    choice = []
    for run in frame.to_dict("records"):
        taken = {name: run[name] for name in options if not blank(run.get(name))}
        choice.append(next((name for name, changed in CHOICES.items() if taken == changed), ""))
    frame = frame.assign(choice=choice)
    rows = []
    for name in CHOICES:
        for cell, runs in frame.groupby(["dataset", "clients", "method"], sort=False) if len(frame) else ():
            changed, usual = (frames.scores(runs, {"choice": value}, "percent") for value in (name, ""))
            if len(changed):
                gap = mean_gap(changed, usual)
                rows.append([name, *cell, usual.mean(), changed.mean(), *gap[:3], len(changed), chance(gap)])
    columns = ["choice", "dataset", "clients", "method", "as in SH-T1", "so", "so minus SH-T1", "low", "high", "runs"]
    table = pd.DataFrame(rows, columns=[*columns, "p"])
    return table.assign(**{HOLM: table.groupby("choice", sort=False)["p"].transform(together)})


def chance(gap: Interval) -> float:
    """Return the two-sided p-value of a mean difference against zero; NaN below two runs."""
    return judge_interval(gap, 0.0, math.inf)[1] if gap.runs > 1 else math.nan


def together(p_values: pd.Series) -> pd.Series:
    """Return the p-values of tests that are looked at together, by Holm's procedure; NaN is no test.

    The smallest of n counts n times, the next n - 1 times and so on, and none counts less than a smaller one.
    """
    tests = p_values.dropna().sort_values()
    counted = tests * np.arange(len(tests), 0, -1)
    return counted.cummax().clip(upper=1.0).reindex(p_values.index)


def left_out(table: pd.DataFrame, name: str, gap: str) -> str:
    """Say which differences have an interval that leaves out zero, each by itself and all looked at together.

    Args:
        table: rows of `reading_table`, or of one choice of `choice_table`.
        name: the column of the rows' names.
        gap: the column of the differences.
    """
    tests = table.dropna(subset=["p"])
    alone, both = tests[tests["low"].gt(0) | tests["high"].lt(0)], tests[tests[HOLM].le(LEVEL)]
    first = "; ".join(f"{row[name]} {row[gap]:+.1f}" for row in alone.to_dict("records"))
    second = "; ".join(f"{row[name]}, p = {row[HOLM]:.2g}" for row in both.to_dict("records"))
    told = f"{len(alone)} of {len(tests)} intervals leave out zero" + (f" ({first})" if first else "")
    return f"{told}; all looked at together (Holm), {len(both)}" + (f" ({second})." if second else ".")


# --- the sheaf stage by stage ------------------------------------------------------------------------------------


def stages(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run, server (`start` or `end` of training) and stage of Figure 3, in order."""
    columns = ["dataset", "seed", "server", "place", *STAGES]
    parts = [
        frames.explode(runs, {name: f"{server}.{name}" for name in STAGES}, columns[:2], "place", 0).assign(
            server=server
        )
        for _, runs in (frame.groupby("dataset", sort=False) if len(frame) else ())
        for server in ("start", "end")
    ]
    table = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
    return table.astype(dict.fromkeys(STAGES[1:], float))


def ablation_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the trained servers of Figure 3 with the same servers without one part, in percent and points.

    The columns `changed` (share of predictions), `received` and `trained` (accuracies before and after local epochs)
    are means over seeds. The last two have their difference to the server as trained with its 95% interval.
    """
    from fedrepro.papers.fedsheafhn.theory.diffusion import AS_TRAINED  # It imports torch.

    scores = ["changed", "received", "trained"]
    lists = {name: f"off.{name}" for name in ("switch", *scores)}
    rows = frames.explode(frame, lists, ["dataset", "seed"])
    if rows.empty:
        return pd.DataFrame(columns=["dataset", "switch", *scores, "runs"])
    runs = rows.set_index(["dataset", "switch", "seed"])[scores] * 100
    usual = runs.xs(AS_TRAINED, level="switch")
    groups = runs.groupby(level=["dataset", "switch"], sort=False)
    table = groups.mean().assign(runs=groups.size())
    for name in scores[1:]:
        gaps = runs[name] - usual[name].reindex(runs.index.droplevel("switch")).to_numpy()
        table = table.join(intervals(gaps, f"{name}, less as trained"))
    return table.reset_index()


# --- new clients -------------------------------------------------------------------------------------------------


def new_clients(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run and group of `NEWCOMERS`: accuracy in percent for a share of new clients (SH-F5)."""
    keys = ["dataset", "seed", "share of new clients"]
    held = frame.reindex(columns=["dataset", "seed", "ratio", *NEWCOMERS.values()])
    named = held.set_axis([*keys, *NEWCOMERS], axis="columns")
    rows = named.melt(keys, list(NEWCOMERS), "clients", "percent")
    return rows.assign(percent=100 * rows["percent"].astype(float))


def new_procedure(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy of each group of `NEWCOMERS` and paired differences of new clients (SH-A2)."""
    keys = ["dataset", "share of new clients"]
    runs = new_clients(frame).pivot_table(index=[*keys, "seed"], columns="clients", values="percent")
    runs = runs.reindex(columns=list(NEWCOMERS)).astype(float)
    groups = runs.groupby(level=keys)
    table = groups.mean().assign(runs=groups["new"].count())
    for name, other in (("new minus trained", "trained"), ("new minus alone", "new, alone")):
        table = table.join(intervals(runs["new"] - runs[other], name))
    return table.reset_index()


# --- malicious clients -------------------------------------------------------------------------------------------


def attack_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run and attack (SH-F7); an honest run starts the line of each attack."""
    lines = [
        rows.assign(**{"method and attack": rows["method"] + ", " + attack})
        for attack in ATTACKS
        for rows in (frame[frame["ratio"].eq(0) | frame["attack"].eq(attack)],)
    ]
    table = pd.concat(lines, ignore_index=True).rename(columns={"ratio": "malicious clients (share)"})
    return table[["dataset", "method", "seed", "method and attack", "malicious clients (share)", "percent"]]


def attack_cost(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `loss`, the points of accuracy that forged embeddings cost each run, compared with the same seed."""
    keys = ["dataset", "method", "seed"]
    honest = frame.loc[frame["ratio"].eq(0), [*keys, "percent"]].drop_duplicates(keys)
    rows = frame[frame["ratio"].gt(0)].merge(honest, "left", on=keys, suffixes=("", "_honest"))
    rows = rows.assign(loss=rows["percent_honest"].astype(float) - rows["percent"].astype(float))
    return rows[[*keys, "ratio", "attack", "loss"]]


def attack_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy for each method, attack and share, and the cost of the attack with its interval."""
    keys = ["dataset", "method and attack", "malicious clients (share)"]
    means = attack_runs(frame).groupby(keys, sort=False)["percent"].agg(["mean", "std", "count"])
    cost = attack_cost(frame).rename(columns={"ratio": keys[-1]})
    cost["method and attack"] = cost["method"] + ", " + cost["attack"].astype(str)
    runs = cost.set_index([*keys, "seed"])["loss"].astype(float)
    return means.join(intervals(runs, "cost")).rename(columns={"count": "runs"}).reset_index()


# --- the cost of the server --------------------------------------------------------------------------------------


def server_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return seconds of the server and of a round, and peak memory, of each run of SH-T6.

    `relative` is the server's time over that of FedSheafHN at 20 clients on the same graph with the same seed. It is
    empty where that was timed in another environment.
    """
    cell = ["dataset", "seed"]
    columns = [*cell, "row", "clients", *TIMINGS, "environment"]
    table = frame.rename(columns={f"timing.{name}": name for name in TIMINGS}).reindex(columns=columns)
    first = table.loc[table["row"].eq(OURS) & table["clients"].eq(20), [*cell, "server_seconds", "environment"]]
    beside = table[cell].merge(first, "left", on=cell).set_index(table.index)
    same = table["environment"].eq(beside["environment"])
    return table.assign(relative=(table["server_seconds"] / beside["server_seconds"]).where(same))


def server_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of `server_runs` next to the published numbers (SH-T6).

    The published numbers belong to ogbn-arxiv on a GPU, and a stand-in has none. `low` and `high` are the ends of the
    95% interval of `relative`.
    """
    timed = server_runs(frame)
    cell = ["dataset", "row", "clients"]
    by_cell = timed.groupby(cell, sort=False)
    table = by_cell[[*TIMINGS, "relative"]].mean()
    table = table.assign(environment=by_cell["environment"].first(), runs=by_cell.size())
    ends = intervals(timed.set_index([*cell, "seed"])["relative"].astype(float), "relative")
    ends = ends.drop(columns="relative").set_axis(["low", "high"], axis=1)
    table = table.join(ends).reset_index()
    table["server_share"] = table["server_seconds"] / table["round_seconds"]
    paper = {(r.method, int(r.clients), r.metric): r.value_number for r in printed("SH-T6").itertuples()}
    for name, metric in (("published_seconds", SERVER_SECONDS), ("published_mebibytes", "memory (MiB)")):
        table[name] = [
            None if run.dataset.endswith("~standin") else paper.get((run.row, run.clients, metric))
            for run in table.itertuples()
        ]
    table["published_relative"] = table["published_seconds"] / paper[OURS, 20, SERVER_SECONDS]
    return table


def server_growth(table: pd.DataFrame) -> pd.DataFrame:
    """Return how far the server's time lies above that at 20 clients, in percent, next to the printed one (SH-X1).

    The paper's other numbers on cost follow. It gives them in prose, without naming the graph.
    """
    ours = table[table["row"].eq(OURS)]
    above = {"metric": GROWTH, "ours": 100 * (ours["relative"] - 1)}
    rows = ours[["dataset", "clients"]].assign(**above)
    rows = rows.join(ours[["server_seconds", "server_share", "runs"]]).reset_index(drop=True)
    paper = printed("SH-X1")
    known = paper[paper["metric"].eq(GROWTH)]
    values = dict(zip(known["clients"].astype(int), known["value_number"], strict=True))
    real = ~rows["dataset"].astype(str).str.endswith("~standin")
    rows["published"] = rows["clients"].map(values).where(real)
    prose = paper[~paper.index.isin(known.index)]
    metric = (prose["metric"] + " " + prose["setting"].fillna("")).str.strip()
    told = prose[["clients"]].assign(dataset="not named", metric=metric, runs=0, published=prose["value_number"])
    return pd.concat([rows, told], ignore_index=True)


def promises(table: pd.DataFrame) -> list[Row]:
    """Check the rounds and the memory of `server_table` against what the suite promises on two cores."""
    ours = table[table["row"].eq(OURS)].set_index(["dataset", "clients"])
    fifty, large = ("Cora", 50), (STANDIN, 20)
    small_text, large_text = "Cora, 50 clients, 3 local epochs", "ogbn-arxiv's size, 20 clients, 10 local epochs"
    rows = [
        (f"100 rounds, ten of them timed, {small_text} (seconds)", fifty, "round_seconds", 100, 120),
        (f"memory, {small_text} (GiB)", fifty, "peak_mebibytes", 1 / 1024, 2),
        (f"a round, {large_text} (seconds)", large, "round_seconds", 1, 60),
        (f"memory, {large_text} (GiB)", large, "peak_mebibytes", 1 / 1024, 8),
    ]
    return [
        limit(f"SH-T6-{letter}", text, float(ours[column].get(cell, math.nan)) * scale, most=most)
        for letter, (text, cell, column, scale, most) in zip("abcd", rows)
    ]


def diverged(table: pd.DataFrame, failed: Sequence[Run]) -> list[int]:
    """Count for each reading of `reading_table` the failed runs that have its options."""
    options = [dict(run.options).items() for run in failed]
    return [sum(READINGS[row].items() <= taken for taken in options) if READINGS[row] else 0 for row in table.index]


def forgeries(run: Run) -> pd.DataFrame:
    """Return what arrives at the server of a run if three tenths of its clients forge embeddings of four ones."""
    import torch  # Listing the exhibits needs no torch.

    from fedrepro.baselines import malicious
    from fedrepro.runs import tasks

    fed = tasks.federation([run])
    forgers = malicious.malicious_clients(fed, 0.3)
    rows = []
    for attack in malicious.ATTACKS:
        sent = malicious.forge_embeddings(fed, torch.ones(fed.clients, 4), 0.3, attack, 1.0, 0)
        forged = sent[forgers]
        rows.append(
            {
                "attack": attack,
                "clients": fed.clients,
                "malicious": int(forgers.sum()),
                "honest embeddings changed": int((sent[~forgers] != 1).sum()),
                "distinct entries of a forged one": len(set(forged[0].tolist())),
                "mean": float(forged.mean()),
                "standard deviation": float(forged.std()),
            }
        )
    return pd.DataFrame(rows)
