"""Grids: what each profile keeps of the paper's runs, and how a run is made small."""

from __future__ import annotations

from typing import Any

import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting.exhibits import Grid, shrunk, smallest
from fedrepro.runs.run import Run, sweep


def run(dataset: str = "Cora", **options: Any) -> Run:
    return Run("train", "fedgat", "FedAvg", dataset, clients=10, options={"rounds": 200, "hidden": 64} | options)


def paper() -> list[Run]:
    """Return three seeds of two methods on two data sets."""
    return sweep(
        task="train",
        paper="fedgat",
        method=["FedAvg", "DistGAT"],
        dataset=["Cora", "PubMed"],
        clients=20,
        seed=range(3),
        options={"rounds": 200, "hidden": 64},
    )


def test_the_paper_has_all_runs() -> None:
    """The profile `paper` has the runs of the grid in their order."""
    assert Grid(paper).runs("paper") == paper()


def test_quick_is_a_part_of_the_paper() -> None:
    """The profile `quick` has the runs that the rule accepts, by default those of seed 0."""
    assert Grid(paper).runs("quick") == [one for one in paper() if one.seed == 0]
    assert Grid(paper, quick=lambda one: one.dataset == "Cora").runs("quick") == [
        one for one in paper() if one.dataset == "Cora"
    ]


def test_a_run_is_asked_for_once() -> None:
    """A run that the grid names twice appears once."""
    assert Grid(lambda: [*paper(), *paper()]).runs("paper") == paper()


def test_seeds_replace_those_of_the_grid() -> None:
    """With two seeds each cell has the seeds 0 and 1, seed slowest; with more than the grid has, all of them."""
    runs = Grid(paper).runs("quick", 2)
    assert [one.seed for one in runs] == [0] * 4 + [1] * 4
    assert [one.replace(seed=0) for one in runs[4:]] == runs[:4]
    assert {one.seed for one in Grid(paper).runs("paper", 5)} == set(range(5))


def test_tuning_runs_keep_their_seeds() -> None:
    """A grid that is not seeded ignores the number of seeds."""
    assert Grid(paper, seeded=False).runs("paper", 7) == paper()


def test_an_unknown_profile_is_an_error() -> None:
    """The message lists the profiles."""
    with pytest.raises(ArgumentError, match="profile must be one of 'smoke', 'quick', 'paper'"):
        Grid(paper).runs("quik")


def test_smoke_has_one_small_run_for_each_combination() -> None:
    """By default there is one run for each method, on a stand-in, with two rounds, 16 units and five clients."""
    runs = Grid(paper).runs("smoke")
    assert [one.method for one in runs] == ["FedAvg", "DistGAT"]
    for one in runs:
        assert (one.dataset, one.clients, one.seed) == ("Cora~standin", 5, 0)
        assert dict(one.options) == {"rounds": 2, "hidden": 16}


def test_smoke_may_follow_another_rule() -> None:
    """A function gives the runs of `smoke` as they are, and options replace those of the small runs."""
    assert Grid(paper, smoke=lambda: paper()[:1]).runs("smoke") == paper()[:1]
    assert all(one.options["rounds"] == 3 for one in Grid(paper, smoke={"rounds": 3}).runs("smoke"))


def test_the_first_run_of_a_combination_is_kept() -> None:
    """Combinations are of fields and options, and a run without an option is a combination too."""
    runs = [run(lr=0.1), run(lr=0.1, dropout=0.5), run(lr=0.2), run()]
    assert [one.options.get("lr") for one in smallest(runs, ["lr"], {})] == [0.1, 0.2, None]
    assert "dropout" not in smallest(runs, ["lr"], {})[0].options


def test_runs_that_become_equal_are_one() -> None:
    """Two large graphs have the same stand-in, so their small runs are one."""
    assert len(smallest([run("PubMed"), run("Photo")], ["dataset"], {})) == 1


def test_a_narrow_run_is_not_widened() -> None:
    """Fewer hidden units and clients than those of the small form stay."""
    small = shrunk(run(hidden=8).replace(clients=2), {})
    assert (small.options["hidden"], small.clients) == (8, 2)


def test_a_generated_graph_stays() -> None:
    """A graph that the package draws keeps its name and its clients, with few rounds."""
    small = shrunk(run("csbm-SC"), {})
    assert (small.dataset, small.clients, small.options["rounds"]) == ("csbm-SC", 10, 2)


def test_a_small_run_can_be_made_small_again() -> None:
    """A run on a stand-in stays on it."""
    assert shrunk(shrunk(run(), {}), {}) == shrunk(run(), {})
