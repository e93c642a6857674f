"""Train by FedAvg, from "Communication-Efficient Learning of Deep Networks from Decentralized Data".

H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, AISTATS 2017, arXiv:1602.05629. With client k's
n_k training nodes among n in all and its weights w_k after local training,

    w = sum_k n_k / n w_k

In each round:

1. the server sends its weights to the clients (`Method.begin_round`);
2. every client takes `local_epochs` steps on its loss (`Method.local_steps`);
3. the server averages the weights that come back (`Method.aggregate`).

The papers weigh clients in different ways, so `average` chooses n_k: "equal", "train" nodes or all "nodes".
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """FedAvg, which is the default round of `Method`."""
