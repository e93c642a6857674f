"""The runs behind each exhibit of GFL-APPNP, and its claims."""

from fedrepro.papers.gfl.exhibits import experiments

EXHIBITS = [*experiments.EXHIBITS]
