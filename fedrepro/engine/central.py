"""Train centrally: one client holds the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrepro.engine.federation import Federation
from fedrepro.engine.local import Local
from fedrepro.engine.method import State
from fedrepro.errors import require


@dataclass(frozen=True, kw_only=True)
class Central(Local):
    """Local training of the only client of each run, which holds the whole graph."""

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Return the federation and the initial weights.

        Raises:
            ArgumentError: a run has more than one client.
        """
        largest = int(torch.bincount(fed.run).max())
        require(largest == 1, "clients", "1 for central training (partition 'single')", largest)
        return super().start(fed)
