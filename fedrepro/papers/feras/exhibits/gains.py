"""Feras: what sharing is worth, ours on paired seeds and as printed (FR-Q1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedrepro.papers.feras.exhibits.tables import FERAS, HOSTS, ISOLATED, METHODS, PAPERS_GRAPHS, SHARED, chosen
from fedrepro.reporting import compare, published

if TYPE_CHECKING:
    import pandas as pd


def seedwise(frame: pd.DataFrame) -> pd.DataFrame:
    """Per graph, kappa, hosts and seed what each method that shares gains over isolation: `gain`, in points."""
    keys = ["dataset", "kappa", "hosts", "seed"]
    wide = chosen(frame).pivot_table(index=keys, columns="method", values="score", sort=False).reindex(columns=METHODS)
    gains = 100 * wide[list(METHODS[1:])].sub(wide[ISOLATED], axis=0)
    return gains.stack().rename("gain").reset_index()


def gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """FR-Q1: for each graph, kappa and number of hosts what Feras gains over isolation and over shared weights, and
    these over isolation, ours (mean over common seeds) and published (with the root of the summed squared spreads).

    Every method counts with its best sampler: in ours by validation, among those that all methods of the cell have
    (FR-S2); in the paper's by the printed score of the isolated rows, which have no number of hosts.
    """
    import pandas as pd

    pairs = [(FERAS, ISOLATED), (FERAS, SHARED), (SHARED, ISOLATED)]
    rows: list[dict[str, Any]] = []
    for (dataset, kappa, hosts), group in frame.groupby(["dataset", "kappa", "hosts"], sort=False):
        wide = chosen(group).pivot_table(index="seed", columns="method", values="score").reindex(columns=METHODS)
        for a, b in pairs:
            each, found = (wide[a] - wide[b]).dropna(), compare.common(wide[a], wide[b])
            row = {"dataset": dataset, "setting": f"kappa={kappa}%", "hosts": hosts, "gain": f"{a} over {b}"}
            row |= {"ours": each.mean(), "low": found.low if found else math.nan}
            row |= {"high": found.high if found else math.nan, "runs": len(each)}
            rows.append(row)
    ours = pd.DataFrame(rows, columns=["dataset", "setting", "hosts", "gain", "ours", "low", "high", "runs"])
    return ours.merge(published_gaps(), how="outer", on=["dataset", "setting", "hosts", "gain"], sort=False)


def published_gaps() -> pd.DataFrame:
    """The same differences in the paper's Table 2: `published` and `published_spread`."""
    import pandas as pd

    paper = published.load("feras").query("exhibit == 'FR-T2'")
    rows: list[dict[str, Any]] = []
    for dataset in PAPERS_GRAPHS:
        for percent in (40, 60):
            cells = paper[paper["dataset"].eq(dataset) & paper["setting"].str.startswith(f"kappa={percent}%")]
            alone = cells[cells["clients"].eq("")]
            best = alone.loc[alone["value_number"].idxmax()]
            for hosts in HOSTS:
                mine = cells[cells["clients"].eq(str(hosts))].set_index("method")
                feras, shared = mine.loc[FERAS], mine.loc[SHARED]
                for name, a, b in (
                    (f"{FERAS} over {ISOLATED}", feras, best), (f"{FERAS} over {SHARED}", feras, shared),
                    (f"{SHARED} over {ISOLATED}", shared, best),
                ):  # fmt: skip
                    spread = math.hypot(a["spread_number"], b["spread_number"])
                    value = a["value_number"] - b["value_number"]
                    rows.append({
                        "dataset": dataset, "setting": f"kappa={percent}%", "hosts": hosts, "gain": name,
                        "published": value, "published_spread": spread,
                    })  # fmt: skip
    return pd.DataFrame(rows)
