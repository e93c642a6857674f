"""Which runs stand behind each exhibit, one file per paper, and the paper's claims as functions of the store.

An exhibit is one entry of a paper's `EXHIBITS`: the notebook that draws it and the grid of runs it needs in each
profile. Listing them needs neither torch nor a graph. Where a paper's text and our runs part is listed in
`papers/<paper>/deviations.csv`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fedrepro import paths
from fedrepro.errors import one_of
from fedrepro.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

PAPERS = ("fedgat", "fedstruct", "gfl", "feras", "fedsheafhn", "engine")
PROFILES = ("smoke", "quick", "paper")


@dataclass(frozen=True)
class Exhibit:
    """What an exhibit is made of.

    Args:
        id: as in `published/exhibits.csv`, such as `FG-T1`.
        paper: the folder of its notebook and figures.
        notebook: the notebook's name in that folder.
        title: one line.
        grid: the runs of a profile; those of `quick` are among those of `paper`.
        seeded: whether `seeds` of `runs` replaces the grid's seeds; not for tuning, whose seed no
            reported run uses.
    """

    id: str
    paper: str
    notebook: str
    title: str
    grid: Callable[[str], list[Run]]
    seeded: bool = True

    def runs(self, profile: str, seeds: int = 0) -> list[Run]:
        """The runs of a profile; with `seeds`, the same cells with seeds 0 to `seeds - 1`, seed slowest.

        Raises:
            ArgumentError: no such profile.
        """
        runs = self.grid(one_of("profile", profile, PROFILES))
        if seeds == 0 or not self.seeded:
            return list(runs)
        cells = dict.fromkeys(run.replace(seed=0) for run in runs)
        return [cell.replace(seed=seed) for seed in range(seeds) for cell in cells]


def deviations(paper: str) -> pd.DataFrame:
    """The paper's numbered deviations: id, what the paper says, what we do, why."""
    import pandas as pd

    return pd.read_csv(paths.paper(one_of("paper", paper, PAPERS)) / "deviations.csv")


def messages(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """What stored training runs sent: scalars of a whole run by stage, direction and kind of message, mean over the
    runs that agree in `by`. A paper's diagram draws them as arrows (FG-F1, SH-F2).
    """
    names = [name for name in frame if name.startswith(("traffic.before.", "traffic.training."))]
    long = frame.melt(by, names, "message", "scalars").dropna(subset=["scalars"])
    parts = long["message"].str.split(".", expand=True).reindex(columns=range(4))
    long = long.assign(stage=parts[1], direction=parts[2], message=parts[3])
    counted = long.groupby([*by, "stage", "direction", "message"], sort=False)["scalars"].agg(["mean", "count"])
    return counted.rename(columns={"mean": "scalars", "count": "runs"}).reset_index()


@cache
def registered() -> dict[str, Exhibit]:
    """Return every exhibit by its ID, in the order of the papers."""
    modules = [importlib.import_module(f"fedrepro.papers.{name}.exhibits") for name in PAPERS]
    return {exhibit.id: exhibit for module in modules for exhibit in module.EXHIBITS}
