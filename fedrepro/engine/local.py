"""Local training: every client alone, nothing exchanged."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """No weight is ever sent. Clients of a run start from the same initial weights, as under FedAvg."""

    @property
    def personal(self) -> tuple[str, ...]:
        """All weights."""
        return tuple(self.model.init([0]))
