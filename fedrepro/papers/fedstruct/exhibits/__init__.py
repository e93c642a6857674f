"""The runs behind each exhibit of FedStruct, and its claims."""

from fedrepro.papers.fedstruct.exhibits import experiments

EXHIBITS = [*experiments.EXHIBITS]
