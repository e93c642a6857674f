"""Which runs stand behind each exhibit, one file per paper, and the paper's claims as functions of the store.

An exhibit is one entry of a paper's `EXHIBITS`: the notebook that draws it and the grid of runs it needs in each
profile. Listing them needs neither torch nor a graph. Where a paper's text and our runs part is listed in
`<paper>-deviations.csv`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.errors import one_of
from fedrepro.runs import Run

if TYPE_CHECKING:
    import pandas as pd

PAPERS = ("fedgat", "gfl", "engine")
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
    """

    id: str
    paper: str
    notebook: str
    title: str
    grid: Callable[[str], list[Run]]

    def runs(self, profile: str) -> list[Run]:
        """The runs of a profile.

        Raises:
            ArgumentError: no such profile.
        """
        return self.grid(one_of("profile", profile, PROFILES))


def deviations(paper: str) -> pd.DataFrame:
    """The paper's numbered deviations: id, what the paper says, what we do, why."""
    import pandas as pd

    return pd.read_csv(Path(__file__).with_name(f"{one_of('paper', paper, PAPERS)}-deviations.csv"))


def _all() -> dict[str, Exhibit]:
    names = (*PAPERS, "fedgat_protocol")
    modules = [importlib.import_module(f"fedrepro.exhibits.{name}") for name in names]
    return {exhibit.id: exhibit for module in modules for exhibit in module.EXHIBITS}


EXHIBITS: dict[str, Exhibit] = _all()
