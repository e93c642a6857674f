"""The runs behind each exhibit of Feras, and its claims."""

from fedrepro.papers.feras.exhibits import experiments

EXHIBITS = [*experiments.EXHIBITS]
