"""The central GCN, GAT and GraphSAGE of GFL's tables: full-batch training without bias terms (Appendix A.2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedrepro.engine.central import Central
from fedrepro.engine.federation import Federation
from fedrepro.engine.method import State, Step
from fedrepro.engine.nn import random


@dataclass(frozen=True, kw_only=True)
class CentralUnbiased(Central):
    """Central training in which biases stay 0.

    Args:
        torch_init: weights of every layer uniform on +-1/sqrt(fan in), PyTorch's default for linear layers; else, and
            for attention vectors, the model's own.
    """

    torch_init: bool = False

    def start(self, fed: Federation) -> tuple[Federation, State]:
        """Initial weights."""
        fed, state = super().start(fed)
        if self.torch_init:
            for name, w in state.personal.items():
                if w.dim() == 3 and not name.endswith((".source", ".target")):
                    for client, seed in enumerate(fed.seeds):
                        drawn = 2 * random.uniform(tuple(w.shape[1:]), "init", seed, name) - 1
                        w[client] = (drawn / math.sqrt(w.shape[1])).to(w)
        return fed, state

    def local_steps(self, fed: Federation, state: State, t: int) -> Iterator[Step]:
        """Steps that move everything but the biases."""
        for step in super().local_steps(fed, state, t):
            yield step._replace(names=tuple(name for name in step.names if not name.endswith("bias")))
