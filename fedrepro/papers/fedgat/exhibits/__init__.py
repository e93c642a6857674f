"""The runs behind each exhibit of FedGAT, and its claims."""

from fedrepro.papers.fedgat.exhibits import algorithm, experiments

EXHIBITS = [*experiments.EXHIBITS, *algorithm.EXHIBITS]
