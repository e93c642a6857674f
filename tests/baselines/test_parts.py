"""The parts of a network that personalized methods take apart give the network's own logits when put together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loop import task

from fedrepro.baselines.personal import chunk_of, classify, embed, last_layers, require_layers
from fedrepro.engine.federation import Federation
from fedrepro.engine.nn.models import APPNP, DGCN, GAT, GCN, MLP, GCNHead, GraphSAGE, Model, SAGEHead
from fedrepro.engine.nn.sparse import Sparse
from fedrepro.errors import ArgumentError

SIZES: dict[str, Any] = {"features": 7, "classes": 3, "hidden": 5, "dropout": 0.4}
MODELS: list[Model] = [GCN(**SIZES), GCN(**SIZES, layers=3)]
MODELS += [kind(**SIZES) for kind in (GCNHead, GraphSAGE, MLP, SAGEHead)]
MODELS += [SAGEHead(**SIZES, stack=(6, 4), input_norm=True), GCN(**SIZES, input_norm=True)]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("model", MODELS, ids=[f"{type(m).__name__}{i}" for i, m in enumerate(MODELS)])
def test_embedding_and_head_make_the_logits(model: Model, sparse: bool) -> None:
    """Embedding and classifier give the network's logits bitwise, in evaluation and while training with dropout."""
    fed = Federation.of(*task(5, sparse=sparse), dtype=torch.float64)
    assert isinstance(fed.x, Sparse) == sparse
    weights = {name: w[fed.run] for name, w in model.init(fed.seeds, torch.float64).items()}
    for seen in (fed, fed.at(2, 1)):
        h = embed(model, weights, seen)
        assert h.shape == (fed.nodes, model.widths[-1][0])
        assert torch.equal(classify(model, weights, seen, h), model(weights, seen))


def test_last_layers_are_named() -> None:
    """The last layers are the classifier, then more, up to all weights."""
    model = SAGEHead(**SIZES, input_norm=True)
    assert last_layers(model, 0) == ()
    assert set(last_layers(model, 1)) == {"layer3.weight", "layer3.bias"}
    assert set(last_layers(model, 3)) == set(model.init([0]))


def test_models_without_plain_layers_are_refused() -> None:
    """A GAT, two models that propagate logits, and a model of one layer are refused."""
    for model in (GAT(7, 3), APPNP(7, 3), DGCN(7, 3), GCN(7, 3, layers=1)):
        with pytest.raises(ArgumentError, match="sequence of layers"):
            require_layers(model, "a test")


def test_a_chunk_knows_its_clients() -> None:
    """The indices of a chunk's clients are right for several runs of different sizes, and for selections of them."""
    feds = [Federation.of(*task(clients, seed), seed) for seed, clients in enumerate((3, 5, 1))]
    fed = Federation.stack(feds)
    assert chunk_of(fed) == slice(0, 9)
    assert chunk_of(fed.select([2, 3, 4])) == slice(2, 5)
    assert chunk_of(fed.select([8])) == slice(8, 9)
    with pytest.raises(ArgumentError, match="consecutive"):
        chunk_of(fed.select([1, 4]))
