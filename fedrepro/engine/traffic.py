"""Every message between clients and server, counted in scalars and bytes.

A scalar is one number, whatever its type; bytes are scalars times the size of that type.
Communication tables are read off this ledger and then held against the papers' formulas.
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
        runs: number of runs; every count is a vector `[runs]`.
        size: bytes of one scalar.
    """

    runs: int = 1
    size: int = 4
    _scalars: dict[tuple[int, str, str], np.ndarray] = field(default_factory=dict)

    def send(self, direction: str, name: str, scalars: np.ndarray | float, *, round: int = BEFORE_TRAINING) -> None:
        """Count a message.

        Args:
            direction: "up" (client to server) or "down" (server to client).
            name: what is sent, such as "weights".
            scalars: how many numbers, over all clients of a run: one count, or `[runs]`.
            round: the round, or `BEFORE_TRAINING`.
        """
        one_of("direction", direction, ("up", "down"))
        count = np.broadcast_to(np.asarray(scalars, dtype=float), (self.runs,))
        key = (round, direction, name)
        self._scalars[key] = self._scalars.get(key, 0) + count

    def summary(self, run: int = 0) -> dict[str, dict[str, float]]:
        """Totals of one run: `{"before": {"up.features": scalars, ...}, "training": {...}, "bytes": {...}}`.

        "before" is what travels before the first round, "training" all rounds together; "bytes" holds both totals in
        bytes.
        """
        before: dict[str, float] = defaultdict(float)
        training: dict[str, float] = defaultdict(float)
        total = {"before": 0.0, "training": 0.0}
        for (round, direction, name), count in sorted(self._scalars.items()):
            part, where = (before, "before") if round == BEFORE_TRAINING else (training, "training")
            part[f"{direction}.{name}"] += float(count[run])
            total[where] += float(count[run]) * self.size
        return {"before": dict(before), "training": dict(training), "bytes": total}

    def round(self, number: int, run: int = 0) -> dict[str, float]:
        """Scalars of one round of one run, by `direction.name`."""
        return {f"{way}.{name}": float(c[run]) for (r, way, name), c in self._scalars.items() if r == number}
