"""FedSheafHN: the frames its exhibits show, made from stored runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fedrepro.papers.fedsheafhn.exhibits.settings import (
    ABLATED,
    ARXIV,
    BASE_MODEL,
    CHOICES,
    DATASETS,
    METHODS,
    MODULES,
    NETWORKS,
    OURS,
    PAPER,
    READINGS,
    STANDIN,
    chosen,
    rival_of,
    settings,
    view_of,
)
from fedrepro.reporting.compare import common, limit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


POINT = 1.0  # the least difference that matters: one accuracy point, in percent


def named(frame: pd.DataFrame, view: str = "") -> pd.DataFrame:
    """Runs with the scores of the view their own paper evaluates (`METHODS`), or all of one `view`, in percent.

    Returns:
        The frame with `view`, `percent` (federated accuracy at the best validation round), `other` (the same in the
        other view), `last` (at the last round) and `val` (on validation nodes, at the best round).
    """
    views = [view or view_of(run["method"], run) for run in frame.to_dict("records")]
    others = ["after" if view == "before" else "before" for view in views]

    def scores(of: list[str], where: str, on: str = "test") -> list[float]:
        """In percent, NaN where the record has none."""
        columns = {view: frame.get(f"{view}.{where}.{on}_clients", {}) for view in ("before", "after")}
        found = [columns[view].get(index) for index, view in zip(frame.index, of, strict=True)]
        return [float("nan") if value is None else 100 * float(value) for value in found]

    return frame.assign(
        view=views, percent=scores(views, "best"), last=scores(views, "last"), other=scores(others, "best"),
        val=scores(views, "best", "val"),
    )  # fmt: skip


def judged(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """Published against ours: SH-T1 or T2."""
    from fedrepro.reporting import compare, published

    paper = published.load(PAPER).query("exhibit == @exhibit")
    mine = named(frame)
    return compare.table(
        mine, paper, on=["dataset", "method", "clients"], value="percent", margin=POINT, runs_published=5
    )


def as_printed(table: pd.DataFrame) -> pd.DataFrame:
    """SH-T1 or T2 in the paper's shape: a cell is our mean ± sd, the number of runs and the verdict's mark."""
    from fedrepro.reporting.figures import MARKS

    cells = table.assign(column=table["dataset"] + ", " + table["clients"].astype(str) + " clients")
    cells["cell"] = [
        f"{_number(row.ours_mean, row.ours_sd)} ({row.runs}) {MARKS[row.verdict]}" if row.runs else ""
        for row in cells.itertuples()
    ]
    wide = cells.pivot(index="method", columns="column", values="cell")
    return wide.loc[list(METHODS), list(dict.fromkeys(cells["column"]))].reset_index()


def _number(mean: float, sd: float) -> str:
    return f"{mean:.2f}" if sd != sd else f"{mean:.2f} ± {sd:.2f}"


def rows_of(frame: pd.DataFrame, rows: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Runs under the row names of SH-T4, T5 or M2: the row whose options, where they differ from those of SH-T1, are
    the run's; FedAvg is the base model. All are scored after local training (SH-V): from FedAvg as averaged to
    FedSheafHN as trained is a change of view first, and of module second.
    """
    frame = named(frame, "after")
    options = sorted({name for more in rows.values() for name in more})
    found = []
    for run in frame.to_dict("records"):
        usual = settings(OURS, run["dataset"], run["clients"])
        has = {name: run[name] for name in options if not _blank(run.get(name)) and run[name] != usual.get(name)}
        match = [row for row, more in rows.items() if has == {n: v for n, v in more.items() if v != usual.get(n)}]
        found.append(BASE_MODEL if run["method"] == "FedAvg" else match[0] if match else "")
    return frame.assign(row=found)


def _blank(value: Any) -> bool:
    return value is None or value != value


def ablation(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """SH-T4 or T5: published beside ours on ogbn-arxiv, and ours on the other graphs."""
    import pandas as pd

    from fedrepro.reporting import compare, published

    rows = MODULES if exhibit == "SH-T4" else NETWORKS
    mine = rows_of(frame, rows)
    mine = mine.assign(method=mine["row"])
    paper = published.load(PAPER).query("exhibit == @exhibit")
    graphs = [ARXIV, *(name for name in ABLATED if name != ARXIV)]
    parts = [paper.assign(dataset=graph) for graph in graphs]
    for part in parts[1:]:  # nothing is published for them
        part[["value", "value_number"]] = ["", float("nan")]
    return compare.table(mine, pd.concat(parts, ignore_index=True), on=["dataset", "method", "clients"],
                         value="percent", margin=POINT, runs_published=5)  # fmt: skip


def with_spread(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """SH-T5 with how far the weights generated for different clients lie apart (`generated_spread`): mean, lowest and
    highest run.

    Args:
        rows: as `rows_of` gives them.
    """
    keys, spread = ["dataset", "method", "clients"], "facts.generated_spread"
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, "dataset", "clients", spread])))
    rows = rows.assign(method=rows["row"], clients=rows["clients"].astype(str), **{spread: rows[spread].astype(float)})
    found = rows.groupby(keys)[spread].agg(["mean", "min", "max"]).reset_index()
    names = {"mean": "generated_spread", "min": "generated_spread_low", "max": "generated_spread_high"}
    return table.merge(found.rename(columns=names), "left", on=keys)


def with_series(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with what its records keep of their rounds and clients, as columns `series.<view>.<entry>`."""
    from fedrepro.runs.store import opened

    store = opened()
    kept = [(store.get(key) or {}).get("series") or {} for key in frame["key"]]
    names = dict.fromkeys(name for series in kept for name in series)
    return frame.assign(**{f"series.{name}": [series.get(name) for series in kept] for name in names})


def clients_of(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run and client: method, data set, clients, seed, `client` and its accuracy in percent.

    Where a record holds no list of its method's view at the best round, FedSheafHN's own list of the last round is
    taken; a run with neither is left out.
    """
    import pandas as pd

    rows = []
    for run in named(frame).to_dict("records"):
        scores: list[float | None] = next((run[name] for name in (f"series.{run['view']}.clients", "facts.client_test")
                       if isinstance(run.get(name), list)), [])  # fmt: skip
        for client, score in enumerate(scores):
            if score is not None:
                rows.append({"dataset": run["dataset"], "method": run["method"], "clients": run["clients"],
                             "seed": run["seed"], "client": client, "percent": 100 * score,
                             "vectors": run.get("vectors")})  # fmt: skip
    return pd.DataFrame(rows, columns=["dataset", "method", "clients", "seed", "client", "percent", "vectors"])


def spreads(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-T3: mean and standard deviation over clients, averaged over runs, and the published pairs, beside ours where
    ogbn-arxiv itself was run.
    """
    from fedrepro.reporting import published

    each = clients_of(frame).groupby(["dataset", "method", "clients", "seed"], sort=False)["percent"]
    per_run = each.agg(["mean", "std"]).reset_index()
    table = per_run.groupby(["dataset", "method", "clients"], sort=False).agg(
        ours_mean=("mean", "mean"), ours_sd_over_clients=("std", "mean"), runs=("seed", "nunique")
    )
    table = table.reset_index()
    return _beside(table, published.load(PAPER).query("exhibit == 'SH-T3'").astype({"clients": int}))


def _beside(table: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Spreads over clients with the published ones, which have rows of their own where nothing was run."""
    import pandas as pd

    keys = ["dataset", "method", "clients"]
    pairs = {"value_number": "published_mean", "spread_number": "published_sd_over_clients"}
    printed = paper[[*keys, *pairs]].rename(columns=pairs)
    known = set(table[keys].itertuples(index=False, name=None))
    alone = printed[[key not in known for key in printed[keys].itertuples(index=False, name=None)]]
    both = table.astype({"dataset": object, "method": object, "clients": int}).merge(printed, "left", on=keys)
    return pd.concat([both, alone], ignore_index=True).astype({"runs": float}).fillna({"runs": 0})


def rounds_of(frame: pd.DataFrame, view: str = "") -> pd.DataFrame:
    """SH-F4, SH-M1: one row per run and round: method, data set, seed, round, pooled validation accuracy and federated
    test accuracy; of each method's own view, or all of one `view`.
    """
    import pandas as pd

    rows = []
    for run in named(frame, view).to_dict("records"):
        kept = [run.get(f"series.{run['view']}.{part}") for part in ("val", "test_clients")]
        if all(isinstance(values, list) for values in kept):
            for number, (val, test) in enumerate(zip(*kept, strict=True), start=1):
                rows.append({"dataset": run["dataset"], "method": run["method"], "seed": run["seed"], "round": number,
                             "val": 100 * val, "test": 100 * test})  # fmt: skip
    return pd.DataFrame(rows, columns=["dataset", "method", "seed", "round", "val", "test"])


def selection_bias(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-M1: test accuracy at the best test round minus that at the best validation round, in points, per method."""
    import pandas as pd

    rows = [
        {"dataset": dataset, "method": method, "points": one["test"].max() - one.loc[one["val"].idxmax(), "test"]}
        for (dataset, method, _), one in rounds_of(frame).groupby(["dataset", "method", "seed"], sort=False)
    ]
    runs = pd.DataFrame(rows, columns=["dataset", "method", "points"]).groupby(["dataset", "method"], sort=False)
    names = {"mean": "points_mean", "max": "points_max", "count": "runs"}
    return runs["points"].agg(list(names)).rename(columns=names).reset_index()


def sheaf_series(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F1b: clients' accuracies with and without sheaf collaboration."""
    each = clients_of(frame)
    without = each["vectors"].eq("one-hot")
    return each.assign(method=without.map({True: SHEAF[1], False: SHEAF[0]}))


SHEAF = "with sheaf collaboration", "without sheaf collaboration"


def sheaf_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F1b in two numbers: mean and standard deviation over clients, averaged over runs, beside the printed pairs."""
    from fedrepro.reporting import published

    each = sheaf_series(frame).groupby(["dataset", "method", "clients", "seed"], sort=False)["percent"]
    per_run = each.agg(["mean", "std"]).reset_index().groupby(["dataset", "method", "clients"], sort=False)
    table = per_run.agg(ours_mean=("mean", "mean"), ours_sd_over_clients=("std", "mean"), runs=("seed", "nunique"))
    paper = published.load(PAPER).query("exhibit == 'SH-F1b'").astype({"clients": int})
    return _beside(table.reset_index(), paper.assign(method=paper["setting"]))


def server_table(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-T6: seconds of the server and of a whole round, and peak memory, per row and number of clients, beside the
    published numbers, which are of ogbn-arxiv on a GPU; none beside a stand-in. `relative` is to FedSheafHN at 20
    clients on the same graph, and empty where that was measured in another environment.
    """
    from fedrepro.reporting import published

    rows = rows_of(frame.assign(method=frame.get("of")), MODULES | NETWORKS)
    rows = rows.assign(row=rows["row"].where(rows["row"].ne("+ Dynamic embedding"), OURS))
    names = {"timing.server_seconds": "server_seconds", "timing.round_seconds": "round_seconds",
             "timing.peak_mebibytes": "peak_mebibytes"}  # fmt: skip
    table = rows.rename(columns=names).reindex(columns=["dataset", "row", "clients", *names.values(), "environment"])
    table["server_share"] = table["server_seconds"] / table["round_seconds"]
    first = table[table["row"].eq(OURS) & table["clients"].eq(20)].set_index("dataset")
    same = table["environment"].eq(table["dataset"].map(first["environment"]))
    table["relative"] = (table["server_seconds"] / table["dataset"].map(first["server_seconds"])).where(same)
    paper = published.load(PAPER).query("exhibit == 'SH-T6'")
    printed = {(r.method, int(r.clients), r.metric): r.value_number for r in paper.itertuples()}
    for name, metric in (("published_seconds", "server seconds per round"), ("published_mebibytes", "memory (MiB)")):
        table[name] = [None if r.dataset.endswith("~standin") else printed.get((r.row, r.clients, metric))
                       for r in table.itertuples()]  # fmt: skip
    table["published_relative"] = table["published_seconds"] / printed[OURS, 20, "server seconds per round"]
    return table.reset_index(drop=True)


def server_growth(table: pd.DataFrame) -> pd.DataFrame:
    """SH-X1: of `server_table`, what the server's time at more clients is above that at 20, in percent, beside what is
    printed; then the paper's other numbers on cost, which it gives in prose without naming the graph.
    """
    import pandas as pd

    from fedrepro.reporting import published

    ours = table[table["row"].eq(OURS)]
    rows = pd.DataFrame({
        "dataset": ours["dataset"], "clients": ours["clients"], "metric": "server time above 20 clients (percent)",
        "ours": 100 * (ours["relative"] - 1), "server_seconds": ours["server_seconds"],
        "server_share": ours["server_share"], "runs": 1,
    })  # fmt: skip
    paper = published.load(PAPER).query("exhibit == 'SH-X1'")
    above = paper[paper["metric"].eq("server time above 20 clients (percent)")]
    printed = dict(zip(above["clients"].astype(int), above["value_number"], strict=True))
    real = ~rows["dataset"].astype(str).str.endswith("~standin")
    rows["published"] = rows["clients"].map(printed).where(real)
    prose = paper[~paper.index.isin(above.index)]
    metric = (prose["metric"] + " " + prose["setting"].fillna("")).str.strip()
    rest = pd.DataFrame({"dataset": "not named", "clients": prose["clients"], "metric": metric, "runs": 0,
                         "published": prose["value_number"]})  # fmt: skip
    return pd.concat([rows, rest], ignore_index=True)


def promises(table: pd.DataFrame) -> list[dict[str, str]]:
    """Rows of checks: rounds and memory of `server_table` against what the suite promises on two cores."""
    ours = table[table["row"].eq(OURS)].set_index(["dataset", "clients"])

    def found(dataset: str, clients: int, column: str, scale: float) -> float | None:
        return float(ours[column].get((dataset, clients), float("nan"))) * scale

    fifty, large = "Cora, 50 clients, 3 local epochs", "ogbn-arxiv's size, 20 clients, 10 local epochs"
    return [
        limit(
            "SH-T6-a",
            f"100 rounds, ten of them timed, {fifty} (seconds)",
            found("Cora", 50, "round_seconds", 100),
            most=120,
        ),
        limit("SH-T6-b", f"memory, {fifty} (GiB)", found("Cora", 50, "peak_mebibytes", 1 / 1024), most=2),
        limit("SH-T6-c", f"a round, {large} (seconds)", found(STANDIN, 20, "round_seconds", 1), most=60),
        limit("SH-T6-d", f"memory, {large} (GiB)", found(STANDIN, 20, "peak_mebibytes", 1 / 1024), most=8),
    ]


STATISTICS = {"classes": "classes", "nodes": "nodes", "edges": "edges", "clustering coefficient": "clustering",
              "heterogeneity": "heterogeneity"}  # fmt: skip


def statistics_table(frame: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """SH-T7 or T8: each printed number beside the mean and the range of ours over seeds, at the printed precision.

    Returns:
        One row per printed cell: `published`, `ours`, `low`, `high`, `runs` and `agreement`: "to the digit" (our mean,
        rounded, is the printed number), "within our range" (some of our partitions lie on either side or on it), else
        "differs by" and the relative difference; empty where the paper or the store has nothing.
    """
    import pandas as pd

    from fedrepro.reporting import published

    ours = frame.assign(name=frame["dataset"], parts=frame["clients"])
    rows = []
    for cell in published.load(PAPER).query("exhibit == @exhibit").to_dict("records"):
        clients = int(cell["clients"] or 1)
        mine = ours[ours["name"].eq(cell["dataset"]) & ours["parts"].eq(clients)]
        standin = mine.empty
        if standin:
            mine = ours[ours["name"].eq(f"{cell['dataset']}~standin") & ours["parts"].eq(clients)]
        column = STATISTICS[cell["metric"]]
        values = mine[column].dropna().astype(float).tolist() if column in mine else []
        row = {name: cell[name] for name in ("dataset", "clients", "metric")} | {"published": cell["value"]}
        row |= {"ours": sum(values) / len(values) if values else None, "low": min(values, default=None),
                "high": max(values, default=None), "runs": len(values)}  # fmt: skip
        rows.append(row | {"agreement": _agreement(cell["value"], values, standin)})
    return pd.DataFrame(rows)


def _agreement(printed: str, values: list[float], standin: bool) -> str:
    if not values or not printed[:1].isdigit():
        return ""
    if standin:
        return "stand-in"
    target, digits = float(printed), len(printed.partition(".")[2])
    mean = sum(values) / len(values)
    if abs(mean - target) <= 0.5 * 10**-digits + 1e-9:
        return "to the digit"
    half = 0.5 * 10**-digits
    if min(values) - half <= target <= max(values) + half:
        return "within our range"
    return f"differs by {100 * (mean / target - 1):+.1f}%" if target else "differs"


def check_rows(frame: pd.DataFrame, *prefixes: str) -> pd.DataFrame:
    """The checks of a frame's records whose id begins with one of `prefixes`, of several seeds the one furthest from
    holding: the first that does not, else that of the largest measured number.
    """
    import pandas as pd

    columns = ["id", "statement", "measured", "bound", "verdict"]
    rows = pd.DataFrame([row for checks in frame.get("checks", ()) for row in checks], columns=columns)
    rows = rows[rows["id"].str.startswith(prefixes or "")]
    good = rows["verdict"].isin(["holds", "fails, as it must"])
    order = rows.assign(good=good).sort_values(["good", "measured"], ascending=[True, False], kind="stable")
    return order.drop_duplicates("id").sort_index()[columns].reset_index(drop=True)


def panels(
    frame: pd.DataFrame, panel: str, draw: Callable[..., Any], title: str = "", *, x: str, by: str,
    order: Iterable[Any] = (), **more: Any,
) -> Figure:  # fmt: skip
    """One panel per value of `panel`, drawn by `draw(rows, x, by=..., order=..., axes=..., title=..., **more)`, its
    legend below it: a value of `by` has one colour in all of them. A panel with one value of `x` or `by` where others
    have several, of a sweep that has just begun, is left out.
    """
    import matplotlib.pyplot as plt

    from fedrepro.reporting.figures import STYLE

    names = list(order) or list(dict.fromkeys(frame[by]))
    counts = frame.groupby(panel, sort=False)[[x, by]].nunique().min(axis=1)
    shown = [name for name, count in counts.items() if count > 1 or counts.max() < 2]
    groups = [(name, frame[frame[panel].eq(name)]) for name in shown] or [("nothing stored", frame)]
    with plt.style.context(["default", STYLE], after_reset=True):
        figure, axes = plt.subplots(1, len(groups), figsize=(5 * len(groups), 4), squeeze=False)
        for ax, (name, rows) in zip(axes[0], groups, strict=True):
            ax.set_title(str(name))
            if len(rows):
                draw(rows, x, by=by, order=names, axes=ax, title=str(name), **more)
                ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
                ax.margins(y=0.05)
                if ax.get_ylabel() in ("percent", "test"):
                    ax.set_ylabel("test accuracy (percent)")
        if title:
            figure.suptitle(title, fontsize=10)
        plt.close(figure)
    return figure


def other_view(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean federated accuracy in the view that SH-T1 and T2 do not show, per cell of the real graphs: `other_mean`."""
    mine = named(frame)
    mine = mine.assign(clients=mine["clients"].astype(str))
    return mine.groupby(["dataset", "method", "clients"])["other"].mean().rename("other_mean").reset_index()


def majority(frame: pd.DataFrame) -> pd.DataFrame:
    """What needs no training, from the runs of SH-T7 or T8: per data set and number of clients the federated accuracy
    in percent of each client's most frequent class, mean over seeds, `majority`.
    """
    import pandas as pd

    mine = frame[frame["clients"].gt(1)] if len(frame) else pd.DataFrame(columns=["dataset", "clients", "majority"])
    mine = mine.assign(clients=mine["clients"].astype(str), majority=100 * mine["majority"].astype(float))
    return mine.groupby(["dataset", "clients"], sort=False)["majority"].mean().reset_index()


def untrained(table: pd.DataFrame) -> pd.DataFrame:
    """Of SH-T1 and T2 with `majority`: per method how many published and how many of our means lie at or below it, of
    how many columns that have both numbers.
    """
    import pandas as pd

    known = table.dropna(subset=["majority"])
    parts: dict[str, pd.Series] = {}
    for name, column in (("published", "published_mean"), ("ours", "ours_mean")):
        have = known.dropna(subset=[column])
        rows = have.assign(low=have[column].le(have["majority"])).groupby("method", sort=False)["low"]
        parts |= {f"{name}, at or below": rows.sum(), f"{name}, of": rows.count()}
    return pd.DataFrame(parts).reindex(list(METHODS)).fillna(0).astype(int)


def one_run(each: pd.DataFrame) -> pd.DataFrame:
    """The rows of `clients_of` of the first seed that all methods of a data set share, else of each method's first: a
    client of one seed's partition has nothing but its number in common with that of another's.
    """
    import pandas as pd

    parts = [each.iloc[:0]]
    for _, rows in each.groupby("dataset", sort=False):
        seeds = [set(one["seed"]) for _, one in rows.groupby("method")]
        shared = set.intersection(*seeds)
        first = rows.groupby("method")["seed"].transform("min")
        parts.append(rows[rows["seed"].eq(min(shared) if shared else first)])
    return pd.concat(parts).drop(columns="vectors").reset_index(drop=True)


def standing(frame: pd.DataFrame) -> pd.DataFrame:
    """Where FedSheafHN stands in each column of SH-T1 or T2 run on a real graph: `over Local`, in points over the seeds
    that both have, with its 95% interval (`low`, `high`; none for one run), `over rival` likewise, and over all seeds
    that a method has the `rival`, which is the other one of best validation accuracy, and FedSheafHN's `place` by mean
    test accuracy among `methods`.
    """
    import pandas as pd

    from fedrepro.reporting.compare import interval

    rows = []
    for (dataset, clients), cell in named(frame).groupby(["dataset", "clients"], sort=False):
        runs = {name: one.set_index("seed") for name, one in cell.groupby("method")}
        if dataset not in DATASETS or OURS not in runs:
            continue
        scores = {name: one["percent"] for name, one in runs.items()}
        gaps = {name: (scores[OURS] - one).dropna() for name, one in scores.items() if name != OURS}
        rival = rival_of({name: runs[name]["val"] for name, gap in gaps.items() if len(gap)})
        alone = gaps.get("Local", scores[OURS].iloc[:0])
        over = interval(alone.to_numpy())[:3] if len(alone) else (math.nan,) * 3
        place = 1 + sum(one.mean() > scores[OURS].mean() for one in scores.values())
        rows.append([dataset, clients, len(scores[OURS]), scores[OURS].mean(), *over, rival,
                     gaps[rival].mean() if rival else math.nan, place, len(scores)])  # fmt: skip
    columns = ["dataset", "clients", "runs", "ours_mean", "over Local", "low", "high", "rival", "over rival", "place"]
    return pd.DataFrame(rows, columns=[*columns, "methods"])


def steps(table: pd.DataFrame) -> pd.DataFrame:
    """SH-T4 with what each row adds to the one before: `step` of ours, `published_step`."""
    groups = table.groupby(["dataset", "clients"], sort=False)
    return table.assign(step=groups["ours_mean"].diff(), published_step=groups["published_mean"].diff())


# Of a stage of SH-F3, see `fedsheafhn_diffusion.stages`.
STAGES = ("stage", "neighbours", "others", "step", "energy", "map_size", "map_spread")

# Groups of SH-F5: trained clients, new ones after their local epochs, as received, and without the server.
NEWCOMERS = {"trained": "train_test", "new": "new_test", "new, as received": "new_received",
             "new, alone": "new_alone"}  # fmt: skip


def new_clients(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F5: one row per run and group of `NEWCOMERS`, accuracy in percent against the share of new clients."""
    import pandas as pd

    parts = [
        pd.DataFrame({"dataset": frame["dataset"], "seed": frame["seed"], "share of new clients": frame["ratio"],
                      "clients": group, "percent": 100 * frame[column].astype(float)})
        for group, column in NEWCOMERS.items() if column in frame
    ]  # fmt: skip
    columns = ["dataset", "seed", "share of new clients", "clients", "percent"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def new_procedure(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-A2: what being new costs: mean accuracy in percent of each group of `NEWCOMERS` per share of new clients."""
    keys = ["dataset", "share of new clients"]
    each = new_clients(frame).pivot_table(index=[*keys, "seed"], columns="clients", values="percent")
    each = each.reindex(columns=list(NEWCOMERS)).astype(float)
    table = each.groupby(level=keys).mean().assign(runs=each.groupby(level=keys)["new"].count())
    for name, other in (("new minus trained", "trained"), ("new minus alone", "new, alone")):
        table = table.join(_intervals(each["new"] - each[other], name))
    return table.reset_index()


def _intervals(gaps: pd.Series, name: str) -> pd.DataFrame:
    """Mean and 95% interval over seeds, the last level of the index: `name`, `name, low`, `name, high`."""
    import pandas as pd

    from fedrepro.reporting.compare import interval

    levels = list(gaps.index.names[:-1])
    found = {key: interval(each.to_numpy())[:3] for key, each in gaps.dropna().groupby(level=levels, sort=False)}
    index = pd.MultiIndex.from_tuples(list(found), names=levels) if found else gaps.index[:0].droplevel(-1)
    return pd.DataFrame(list(found.values()), index=index, columns=[name, f"{name}, low", f"{name}, high"])


def attacked(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F7: one row per run, method and attack; a run without malicious clients starts the line of either attack."""
    import pandas as pd

    mine = named(frame)
    for name in ("malicious", "attack"):
        if name not in mine:
            mine[name] = None
    share = mine["malicious"].astype(float).fillna(0.0)
    mine = mine.assign(**{"malicious clients (share)": share})
    lines = [
        mine[share.eq(0) | mine["attack"].eq(attack)].assign(
            **{"method and attack": lambda rows, attack=attack: rows["method"] + ", " + attack}
        )
        for attack in ("same", "gaussian")
    ]
    columns = ["dataset", "method", "seed", "method and attack", "malicious clients (share)", "percent"]
    return pd.concat(lines, ignore_index=True)[columns]


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F7: accuracy without malicious clients minus that with them, in points, per run: `ratio`, `attack`, `loss`."""
    import pandas as pd

    mine = named(frame)
    for name in ("malicious", "attack"):
        if name not in mine:
            mine[name] = None
    mine["ratio"] = mine["malicious"].astype(float).fillna(0.0)
    clean = mine[mine["ratio"].eq(0)].set_index(["dataset", "method", "seed"])["percent"].to_dict()
    rows = [
        {"dataset": run.dataset, "method": run.method, "seed": run.seed, "ratio": run.ratio, "attack": run.attack,
         "loss": clean.get((run.dataset, run.method, run.seed), math.nan) - run.percent}
        for run in mine[mine["ratio"].gt(0)].itertuples()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["dataset", "method", "seed", "ratio", "attack", "loss"])


def attack_table(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F7 in numbers: mean accuracy in percent per method, attack and share, and with its interval what the forged
    embeddings cost against the same seeds without them, in points.
    """
    keys = ["dataset", "method and attack", "malicious clients (share)"]
    means = attacked(frame).groupby(keys, sort=False)["percent"].agg(["mean", "std", "count"])
    cost = losses(frame)
    cost["method and attack"] = cost["method"] + ", " + cost["attack"].astype(str)
    each = cost.rename(columns={"ratio": keys[-1]}).set_index([*keys, "seed"])["loss"].astype(float)
    return means.join(_intervals(each, "cost")).rename(columns={"count": "runs"}).reset_index()


def switched_off(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F3's trained servers with a part switched off (`fedsheafhn_switches.switched`), in percent: per data set and
    switch the means of `changed`, `received` and `trained`, and of the last two the difference to the server as
    trained in points, with its 95% interval over seeds.
    """
    import pandas as pd

    from fedrepro.papers.fedsheafhn.theory.diffusion import AS_TRAINED

    parts = [unrolled(one, "off").assign(dataset=name) for name, one in frame.groupby("dataset", sort=False)]
    if not parts:
        return pd.DataFrame(columns=["dataset", "switch", "changed", "received", "trained", "runs"])
    each = pd.concat(parts).set_index(["dataset", "switch", "seed"])[["changed", "received", "trained"]] * 100
    usual = each.xs(AS_TRAINED, level="switch")
    groups = each.groupby(level=["dataset", "switch"], sort=False)
    table = groups.mean().assign(runs=groups.size())
    for name in ("received", "trained"):
        gaps = each[name] - usual[name].reindex(each.index.droplevel("switch")).to_numpy()
        table = table.join(_intervals(gaps, f"{name}, less as trained"))
    return table.reset_index()


def reading_table(rows: pd.DataFrame) -> pd.DataFrame:
    """SH-M2: per reading mean and standard deviation over runs, and the difference to SH-T1's own on the same seeds in
    points, with its 95% interval.

    Args:
        rows: as `rows_of` gives them, of one data set and number of clients.
    """
    usual = rows[rows["row"].eq(next(iter(READINGS)))].set_index("seed")["percent"]
    table = rows.groupby("row", sort=False)["percent"].agg(["mean", "std", "count"])
    table.columns = ["percent_mean", "percent_sd", "runs"]
    gaps = {row: common(one.set_index("seed")["percent"], usual) for row, one in rows.groupby("row", sort=False)}
    for place, name in enumerate(("minus SH-T1", "low", "high")):
        table[name] = [gap[place] if (gap := gaps[row]) else math.nan for row in table.index]
    return table


def stages(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-F3: one row per run, server ("start", "end") and stage, in order."""
    import pandas as pd

    parts = [
        pd.DataFrame({"dataset": run["dataset"], "seed": run["seed"], "server": server, "place": range(len(names)),
                      **{name: run[f"{server}.{name}"] for name in STAGES}})
        for run in frame.to_dict("records") for server in ("start", "end") for names in (run[f"{server}.stage"],)
    ]  # fmt: skip
    columns = ["dataset", "seed", "server", "place", *STAGES]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return table.astype(dict.fromkeys(STAGES[1:], float))


def tuned(trials: pd.DataFrame) -> pd.DataFrame:
    """SH-T9's trials with `used`: whether the tables take this point."""
    places = [chosen().get((row.dataset, row.method), 0) for row in trials.itertuples()]
    return trials.assign(used=trials["place"].eq(places), runs=trials["val"].notna().astype(int))


def printed_ranges() -> pd.DataFrame:
    """SH-T9 as printed: of which part, which number, its range."""
    from fedrepro.reporting import published

    rows = published.load(PAPER).query("exhibit == 'SH-T9'")
    return rows[["setting", "metric", "value"]].rename(
        columns={"setting": "part", "metric": "what", "value": "printed range"}
    )


def choice_table(frame: pd.DataFrame) -> pd.DataFrame:
    """SH-M3: per choice and method the accuracy in percent of SH-T1's cell and of the same seeds with the other choice,
    and the paired difference in points with its interval.
    """
    import pandas as pd

    options = [name for more in CHOICES.values() for name in more]
    scores: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for run in named(frame).to_dict("records"):
        has = {name: run[name] for name in options if not _blank(run.get(name))}
        choice = next((name for name, more in CHOICES.items() if has == more), "")
        cell = scores.setdefault((run["dataset"], run["clients"], run["method"]), {})
        cell.setdefault(choice, {})[run["seed"]] = run["percent"]
    rows = []
    for choice in CHOICES:
        for key, cell in scores.items():
            if choice in cell:
                pair = [pd.Series(cell.get(name, {}), dtype=float) for name in (choice, "")]
                gap = common(*pair) or (math.nan,) * 3
                rows.append([choice, *key, pair[1].mean(), pair[0].mean(), *gap[:3], len(cell[choice])])
    columns = ["choice", "dataset", "clients", "method", "as in SH-T1", "so", "so minus SH-T1", "low", "high", "runs"]
    return pd.DataFrame(rows, columns=columns)


def unrolled(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The lists `<name>.<entry>` of a frame's records as rows, one per place in the lists, with the run's seed."""
    import pandas as pd

    entries = [column for column in frame if str(column).startswith(f"{name}.")]
    parts = [
        pd.DataFrame({str(entry).removeprefix(f"{name}."): run[entry] for entry in entries}).assign(seed=run["seed"])
        for run in frame.to_dict("records")
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["seed"])
