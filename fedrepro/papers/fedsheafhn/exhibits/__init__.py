"""The runs behind each exhibit of FedSheafHN, and its claims."""

from fedrepro.papers.fedsheafhn.exhibits import experiments

EXHIBITS = [*experiments.EXHIBITS]
