"""The graphs, partitions and hyper-parameters of FedSheafHN: Tables 7 to 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.papers.fedsheafhn.exhibits.settings import POINTS, chosen
from fedrepro.papers.fedsheafhn.exhibits.tables import printed, view_of
from fedrepro.reporting import compare, figures, frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# --- Tables 7 and 8 ----------------------------------------------------------------------------------------------


def statistics_table(frame: pd.DataFrame, exhibit_id: str) -> pd.DataFrame:
    """Return each printed number of Table 7 or 8 next to the mean and the range of ours over seeds.

    The column `agreement` is "to the digit" if our mean rounds to the printed number, "within our range" if the printed
    number lies between our partitions, and else "differs by" the relative difference. It is empty where the paper or
    the store has nothing.
    """
    rows = []
    for cell in printed(exhibit_id).to_dict("records"):
        clients, column = int(cell["clients"] or 1), cell["metric"].removesuffix(" coefficient")
        by_kind = {
            kind: frames.select(frame, {"dataset": cell["dataset"] + kind, "clients": clients})
            for kind in compare.KINDS
        }
        kind = next((kind for kind, found in by_kind.items() if len(found)), "")
        runs = by_kind[kind]
        values = (runs[column] if column in runs else pd.Series(dtype=float)).dropna().astype(float)
        name = cell["dataset"] + (kind if kind == compare.INCOMPLETE else "")
        told = {"dataset": name, "clients": cell["clients"], "metric": cell["metric"], "published": cell["value"]}
        ours = {"ours": values.mean(), "low": values.min(), "high": values.max(), "runs": len(values)}
        rows.append(told | ours | {"agreement": _agreement(cell["value"], values, kind == compare.STANDIN)})
    return pd.DataFrame(rows)


def _agreement(number: str, values: pd.Series, standin: bool) -> str:
    if values.empty or not number[:1].isdigit():
        return ""
    if standin:
        return "stand-in"
    target, digits = float(number), len(number.partition(".")[2])
    mean, half = values.mean(), 0.5 * 10**-digits
    if abs(mean - target) <= half + 1e-9:
        return "to the digit"
    if values.min() - half <= target <= values.max() + half:
        return "within our range"
    return f"differs by {100 * (mean / target - 1):+.1f}%" if target else "differs"


def partition_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return sizes of the parts of one partition, the share of edges kept, and nodes without client or neighbour."""
    columns = {
        "smallest part": frame["nodes"].map(min),
        "largest part": frame["nodes"].map(max),
        "edges kept (share)": frame["total_inner_edges"] / frame["edges"],
        "nodes with no client": frame["uncovered_nodes"],
        "isolated nodes": frame["isolated_nodes"].map(sum),
    }
    return frame[["dataset", "clients"]].assign(**columns, runs=1)


def heterogeneity_figure(table: pd.DataFrame) -> Figure:
    """Draw the heterogeneity of the clients' labels, ours and as published, for each graph and number of clients.

    A stand-in is compared with nothing, and left out where the table has a real graph.
    """
    rows = table[table["metric"].eq("heterogeneity") & table["ours"].notna()]
    real = rows["agreement"].ne("stand-in")
    rows = rows[real] if real.any() else rows
    rows = rows.assign(published=pd.to_numeric(rows["published"], errors="coerce"))
    rows["graph and clients"] = rows["dataset"] + " " + rows["clients"]
    long = rows.melt(["graph and clients"], ["ours", "published"], "source", "heterogeneity")
    long = long.dropna(subset=["heterogeneity"]).astype({"heterogeneity": float})
    figure = figures.bars(long, "graph and clients", "heterogeneity", "source")
    figure.set_size_inches(max(5.2, 0.7 * len(rows)), 3.4)
    figure.axes[0].tick_params(axis="x", rotation=60)
    return figure


# --- Table 9 -----------------------------------------------------------------------------------------------------


def trials(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the tuning runs by data set and method, in the order of `POINTS`.

    `place` is the index of a point, `own` the option that only its method has, and `val` and `val_loss` are validation
    accuracy and loss in the method's view at the round of its best accuracy. `used` says whether Tables 1 to 6 take the
    point.
    """
    shared = ("lr", "weight_decay")
    rows = []
    for dataset in dict.fromkeys(frame["dataset"] if len(frame) else ()):
        for method, points in POINTS.items():
            runs = frames.select(frame, {"dataset": dataset, "method": method})
            for place, point in enumerate(points):
                options = {name: value for name, value in point.items() if name not in shared}
                row = {"dataset": dataset, "method": method, "place": place, **{name: point[name] for name in shared}}
                row["own"] = ", ".join(f"{k}={v}" if isinstance(v, str) else f"{k}={v:g}" for k, v in options.items())
                for _, run in frames.select(runs, point).head(1).iterrows():
                    best = f"{view_of(method, run)}.best"
                    row |= {"val": float(run[f"{best}.val_clients"]), "val_loss": float(run[f"{best}.val_loss"])}
                rows.append(row)
    table = pd.DataFrame(rows, columns=["dataset", "method", "place", *shared, "own", "val", "val_loss"])
    places = [chosen().get((row.dataset, row.method), 0) for row in table.itertuples()]
    return table.assign(used=table["place"].eq(places), runs=table["val"].notna().astype(int))


def choices(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `chosen.csv`, the index of the best point for each data set and method with all trials stored.

    The best has the highest validation accuracy, and the lower validation loss of equals.
    """
    table = trials(frame)
    complete = table.groupby(["dataset", "method"])["val"].transform(lambda group: group.notna().all())
    table = table[complete.astype(bool) & ~table["dataset"].str.endswith("~standin")]
    best = table.sort_values(["val", "val_loss"], ascending=[False, True]).drop_duplicates(["dataset", "method"])
    return best.sort_index()[["dataset", "method", "place"]].reset_index(drop=True)
