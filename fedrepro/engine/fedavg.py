"""FedAvg (McMahan et al. 2017): local steps from the server's weights, then their weighted mean."""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """The default round of `Method`, under its name."""
