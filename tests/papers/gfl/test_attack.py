"""Show what a curious server and a curious client rebuild from GFL-APPNP's messages, with and without noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrepro.papers.gfl.attack import (
    _messages,
    _train_on_star,
    from_gradients,
    reconstruct,
    shortest_difference,
    tell_apart,
)
from fedrepro.runs.run import Run


def attack(function: Any, **options: object) -> dict[str, float]:
    """Return the result of an attack."""
    result: dict[str, float] = function(Run("attack", "gfl", "gfl-reconstruction", options=options))["result"]
    return result


def test_the_server_rebuilds_features_and_noise_hides_them_for_a_while() -> None:
    """The server, or a client with one neighbour, finds x from a noiseless gradient; noise hides it for few rounds."""
    options = {"neighbours": 1, "local_epochs": 1, "updates": 3}
    cosine = {
        (party, noise): attack(reconstruct, **options, party=party, noise=noise)["cosine"]
        for party, noise in (("server", 0), ("client", 0), ("server", 50))
    }
    assert cosine["server", 0] > 0.999 and cosine["client", 0] > 0.999
    assert abs(cosine["server", 50]) < 0.5


def test_the_noise_on_gradients_protects_nothing_as_h_goes_out_clean() -> None:
    """h gives the server two equations a round: 120 rounds determine x, and the 24 of twelve rounds do not."""
    options = {"neighbours": 4, "local_epochs": 1, "party": "server", "noise": 1}
    guess = attack(reconstruct, **options, updates=120)
    assert guess["cosine"] < 0.9 and guess["cosine_with_h"] > 0.999999
    few = attack(reconstruct, **options, updates=12)
    assert few["cosine_with_h"] == few["cosine"] < 0.5


def test_a_curious_centre_is_scored_on_the_leaf_closest_to_its_guess() -> None:
    """The largest cosine of three leaves counts, and not their mean."""
    run = Run(
        "attack",
        "gfl",
        "gfl-reconstruction",
        options={"neighbours": 3, "local_epochs": 1, "updates": 3, "party": "client", "noise": 0},
    )
    x, weight, averages = _train_on_star(run)
    guess = from_gradients(averages, _messages(run, x, weight, averages))
    cosines = torch.nn.functional.cosine_similarity(guess[None], x, dim=1)
    assert float(cosines.max() - cosines.mean()) > 0.01
    assert reconstruct(run)["result"]["cosine"] == pytest.approx(float(cosines.max()), abs=1e-9)


def test_a_single_round_hides_one_of_many_neighbours() -> None:
    """After one round the centre tells 2 leaves apart, and not 64."""
    options = {"local_epochs": 10, "updates": 10, "noise": 0}
    two, many = (attack(tell_apart, **options, neighbours=n)["cosine_of_difference"] for n in (2, 64))
    assert two > 0.999 and many < 0.6


def test_the_shortest_difference_is_one_neighbour() -> None:
    """The attack finds the one of three neighbours whose ReLU differs between two of four units, exactly."""
    x = torch.tensor([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0]], dtype=torch.float64)
    on = torch.tensor([[1.0, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)
    second = torch.tensor([[0.5, -1.0]] * 4, dtype=torch.float64)
    sums = torch.einsum("jp,jh->ph", x, on)
    guess = shortest_difference([second], [sums[None] * second.T[:, None]])
    assert torch.allclose(guess.abs(), x[1])
    assert not shortest_difference([second], [torch.ones(2, 3, 4, dtype=torch.float64)]).any()


@pytest.mark.parametrize("neighbours", [2, 16])
def test_a_client_reads_a_neighbours_features_off_sums_and_noise_hides_them(neighbours: int) -> None:
    """A client reads off a neighbour's x without noise, whatever their number, and V1's noise prevents it."""
    options = {"neighbours": neighbours, "local_epochs": 10, "updates": 100}
    plain, noisy = (attack(tell_apart, **options, noise=noise)["cosine_of_difference"] for noise in (0, 1))
    assert plain > 0.999 and noisy < 0.6
