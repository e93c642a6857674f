"""Count every message between clients and server, in scalars and bytes.

A scalar is one number of any type. Bytes are scalars times the size of that type. Communication tables are read from
this ledger and then compared with the papers' formulas.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from fedrepro.errors import one_of

BEFORE_TRAINING = -1


@dataclass
class Traffic:
    """A ledger of messages, for one or several runs side by side.

    Args:
        runs: number of runs. Every count is a vector `[runs]`.
        size: bytes of one scalar.
    """

    runs: int = 1
    size: int = 4
    _scalars: dict[tuple[int, str, str], np.ndarray] = field(default_factory=dict)

    def send(self, direction: str, name: str, scalars: np.ndarray | float, *, round: int = BEFORE_TRAINING) -> None:
        """Count a message.

        Args:
            direction: "up" (client to server) or "down" (server to client).
            name: the content, such as "weights".
            scalars: the number of scalars over all clients of a run, one count for all runs or `[runs]`.
            round: the round, or `BEFORE_TRAINING`.
        """
        one_of("direction", direction, ("up", "down"))
        count = np.full(self.runs, scalars, dtype=float)
        key = (round, direction, name)
        self._scalars[key] = self._scalars.get(key, 0) + count

    def summary(self, run: int = 0) -> dict[str, dict[str, float]]:
        """Return the totals of one run.

        Returns:
            `{"before": {"up.features": scalars, ...}, "training": {...}, "bytes": {"before": ..., "training": ...}}`:
            scalars sent before the first round, scalars sent in all rounds, and both totals in bytes.
        """
        before: dict[str, float] = defaultdict(float)
        training: dict[str, float] = defaultdict(float)
        total = {"before": 0.0, "training": 0.0}
        for (round, direction, name), count in sorted(self._scalars.items()):
            part, phase = (before, "before") if round == BEFORE_TRAINING else (training, "training")
            part[f"{direction}.{name}"] += float(count[run])
            total[phase] += float(count[run]) * self.size
        return {"before": dict(before), "training": dict(training), "bytes": total}

    def round(self, number: int, run: int = 0) -> dict[str, float]:
        """Return the scalars sent in one round of one run, by `direction.name`."""
        return {f"{way}.{name}": float(c[run]) for (r, way, name), c in self._scalars.items() if r == number}
