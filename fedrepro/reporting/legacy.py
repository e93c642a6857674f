"""The former form of an exhibit, kept until every paper has a table of grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedrepro.errors import one_of
from fedrepro.reporting.exhibits import PROFILES
from fedrepro.runs.run import Run


@dataclass(frozen=True)
class Exhibit:
    """An exhibit whose grid is a function of the profile."""

    id: str
    paper: str
    notebook: str
    title: str
    grid: Callable[[str], list[Run]]
    seeded: bool = True

    def runs(self, profile: str, seeds: int = 0) -> list[Run]:
        runs = self.grid(one_of("profile", profile, PROFILES))
        if seeds == 0 or not self.seeded:
            return list(runs)
        cells = dict.fromkeys(run.replace(seed=0) for run in runs)
        return [cell.replace(seed=seed) for seed in range(seeds) for cell in cells]
