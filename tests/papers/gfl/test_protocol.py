"""Algorithm 1 of GFL line by line, compared with the method that trains."""

from __future__ import annotations

from fedrepro.papers.gfl import theory
from fedrepro.runs.run import Run


def test_the_method_trains_as_algorithm_1() -> None:
    """Two rounds give the weights of Algorithm 1 to 1e-10, with one sample per client and with several (GFL-A1)."""
    for dataset, local in (("csbm-DNC", 3), ("csbm-n10x40", 2)):
        run = Run("check", "gfl", "gfl-algorithm", dataset=dataset, options={"local_epochs": local})
        assert theory.algorithm(run)["result"]["largest_difference"] < 1e-10
