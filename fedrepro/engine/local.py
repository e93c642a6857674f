"""Train every client by itself, without any exchange."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """Local training, in which no weight is sent. Clients of a run start from equal weights, as under FedAvg."""

    @property
    def personal(self) -> tuple[str, ...]:
        """Return the names of all weights."""
        return tuple(self.model.init([0]))
