"""FedSage+'s generator gives all nodes of a client one number of neighbours in FedSheafHN's tables (SH-B1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrepro.baselines.fedsage import FedSage
from fedrepro.baselines.impaired import ClientView
from fedrepro.baselines.neighgen import NeighGen
from fedrepro.errors import DataError
from fedrepro.papers.fedsheafhn.exhibits.settings import cell
from fedrepro.runs import tasks

CLIENTS = 3  # clients of the ten, whose generators are trained


def counts(generator: NeighGen, view: ClientView, others: list[ClientView], classes: int) -> torch.Tensor:
    """Train a client's generator, and return the number of neighbours that it predicts for each node, unrounded."""
    weights, _ = generator.train(view, others, classes)
    with torch.no_grad():
        return generator.count(weights, generator.encode(weights, view.x, view.edges, view.keys, None))


@pytest.mark.parametrize("dataset", ["Cora~standin", "Cora"])
def test_a_client_gives_all_nodes_one_number_of_neighbours(dataset: str) -> None:
    """Counts begin at the mean number of hidden neighbours and stay there, while the true numbers differ by node.

    The same generator tells nodes apart with ten times the epochs at ten times the rate and no other client, so the
    measure can.
    """
    (run,) = cell("FedSage+", dataset, 10, [0])
    try:
        fed = tasks.federation([run])
    except DataError:
        pytest.skip(f"the generator is not tried on {dataset}, whose files are not in FEDREPRO_DATA")
    method, _ = tasks.method(run, fed.features, fed.classes)
    assert isinstance(method, FedSage)
    held = [ClientView.of(fed, client) for client in range(fed.clients)]
    for client in range(CLIENTS):
        view, others = held[client], [other for k, other in enumerate(held) if k != client]
        told = counts(method.generator, view, others, fed.classes)
        assert len(told.round().unique()) == 1
        assert float(told.std()) < 0.05 < float(view.missing.float().std()) / 5
    longer = replace(method.generator, epochs=50, lr=0.01, cross=False)
    assert len(counts(longer, held[0], [], fed.classes).round().unique()) > 1
