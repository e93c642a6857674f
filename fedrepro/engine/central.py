"""Central training: one client holds the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrepro.engine.federation import Federation
from fedrepro.engine.local import Local
from fedrepro.engine.method import State
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class Central(Local):
    """Local training of the one client of each run."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Initial weights.

        Raises:
            ArgumentError: a run has more than one client.
        """
        most = int(torch.bincount(fed.run).max())
        require(most == 1, "clients", "1 for central training (partition 'single')", most)
        return super().start(fed)
