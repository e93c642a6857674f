"""FedSheafHN's server: its gradient, its steps, what it generates and when it hears of new embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from fedsheafhn_plain import BARE, CLASSES, CLIENTS, FEATURES, HIDDEN, MODEL, QUICK, build, federate, watched
from graphs import gap, largest_difference

from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import State
from fedrepro.engine.nn.models import GCNHead
from fedrepro.engine.training import train
from fedrepro.papers.fedsheafhn.hypernetwork import Hypernetwork
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.protocol import FedSheafHNAsCoded, FedSheafHNAsPrinted
from fedrepro.papers.fedsheafhn.server import Server

# -- the server's gradient --------------------------------------------------------------------------------------------


def through_the_clients(method: FedSheafHN, fed: Federation, state: State) -> Weights:
    """Differentiate the sum of the clients' losses by the server's weights, from end to end."""
    server: Server = state.more.servers[0]
    leaves = {name: w.clone().requires_grad_() for name, w in server.weights.items()}
    vectors = method.vectors_of(state.more.used)
    held = {**state.personal, **server.generate(leaves, vectors, 0)}
    loss = method.local_loss(held, fed.at(0, 0), state, 0).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))


@pytest.mark.parametrize("maps", ["diagonal", "orthogonal", "general"])
def test_server_gradient_is_a_vector_jacobian_product(maps: str) -> None:
    """With one local SGD step the server's gradient is lr times that of automatic differentiation (SH-I3).

    Automatic differentiation goes through diffusion, hypernetwork and clients, with dropout on.
    """
    options = {"optimizer": "sgd", "local_epochs": 1, "lr": 0.1, "maps": maps, "stalk": 2}
    method = build(**options, sheaf_dropout=0.3, hyper_dropout=0.3)
    fed, state = method.start(federate())
    expected = through_the_clients(method, fed, state)
    _, _, updates = watched(method, 1)
    change = {name: updates[0].before[name] - updates[0].after[name] for name, _ in method.shapes}
    gradient = state.more.servers[0].gradient(method.vectors_of(state.more.used), 0, change)
    for name, g in expected.items():
        assert float(g.norm()) > 0, name
        assert gap(gradient[name], 0.1 * g) < 1e-12, name


def test_server_dropout_is_a_function_of_seed_round_and_place() -> None:
    """A share p of the entries is zero and the others are scaled; another seed, round or place draws others."""
    server: Server = build(hyper_dropout=0.3).start(federate())[1].more.servers[0]
    ones = torch.ones(200, 100, dtype=torch.float64)
    dropped = server._dropout(4)(ones, 0.3, "mlp0")
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((dropped == 0).double().mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(dropped, server._dropout(4)(ones, 0.3, "mlp0"))
    for other in (replace(server, seed=1)._dropout(4)(ones, 0.3, "mlp0"), server._dropout(5)(ones, 0.3, "mlp0")):
        assert float((dropped == other).double().mean()) < 0.7
    assert float((dropped == server._dropout(4)(ones, 0.3, "mlp1")).double().mean()) < 0.7
    assert server._dropout(4)(ones, 0.0, "mlp0") is ones


def test_a_round_steps_with_the_dropout_it_was_generated_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that a round trains were generated with its own masks, and so is the gradient of its step."""
    seen: list[tuple[str, int | None]] = []
    generate, step = Server.generate, Server.step

    def generated(self: Server, weights: Weights, vectors: torch.Tensor, t: int | None) -> Weights:
        seen.append(("generated", t))
        return generate(self, weights, vectors, t)

    def stepped(self: Server, vectors: torch.Tensor, t: int, change: Weights) -> None:
        seen.append(("stepped", t))
        step(self, vectors, t, change)

    monkeypatch.setattr(Server, "generate", generated)
    monkeypatch.setattr(Server, "step", stepped)
    watched(build(hyper_dropout=0.3, sheaf_dropout=0.3), 3)
    assert seen == [("generated", 0), *(one for t in range(3) for one in (("stepped", t), ("generated", t + 1)))]


def test_plain_steps() -> None:
    """With "sgd" the server subtracts its rates times gradient and weight decay (SH-Q6)."""
    method = build(server_optimizer="sgd", hyper_weight_decay=0.1, sheaf_weight_decay=0.2, hyper_lr=1e-3, sheaf_lr=2e-3)
    _, start = method.start(federate())
    trained, _, updates = watched(method, 1)
    change = {name: updates[0].before[name] - updates[0].after[name] for name, _ in method.shapes}
    server: Server = start.more.servers[0]
    gradient = server.gradient(method.vectors_of(start.more.used), 0, change)
    for name, w in trained.state.more.servers[0].weights.items():
        old = server.weights[name]
        rate, decay = (1e-3, 0.1) if name.startswith("hyper") else (2e-3, 0.2)
        assert gap(w, old - rate * (gradient[name] + decay * old)) < 1e-12, name


def loss_of_generated(method: FedSheafHN, fed: Federation, state: State) -> float:
    return float(method.local_loss(state.personal, fed, state, 0).sum())


def test_the_corrected_sign_descends_and_the_printed_one_ascends() -> None:
    """One server step with our sign lowers the clients' loss, and one with the printed sign raises it (SH-Q3)."""
    change = {}
    for kind in (FedSheafHN, FedSheafHNAsPrinted):
        method = build(kind, hyper_lr=1e-4, sheaf_lr=1e-4, refresh=0)
        fed, state = method.start(federate())
        _, states, _ = watched(method, 1)
        head = {name: state.personal[name] for name in method.personal}
        moved = State({}, {**states[0].personal, **head}, states[0].more)
        change[kind] = loss_of_generated(method, fed, moved) - loss_of_generated(method, fed, state)
    assert change[FedSheafHN] < -1e-5
    assert change[FedSheafHNAsPrinted] > 1e-5


def test_equal_vectors_give_equal_weights() -> None:
    """The hypernetwork tells clients apart by nothing but their vectors."""
    method = build()
    _, state = method.start(federate())
    server: Server = state.more.servers[0]
    same = server.generate(server.weights, torch.ones(CLIENTS, HIDDEN, dtype=torch.float64), None)
    assert all(gap(w, w[:1].expand_as(w)) < 1e-12 for w in same.values())
    made = server.generate(server.weights, method.vectors_of(state.more.used), None)
    assert gap(made["layer1.weight"][0], made["layer1.weight"][5]) > 1e-3


def test_the_softmax_of_equation_10_is_nearly_one_hot_for_scaled_embeddings() -> None:
    """At the start most clients take one other client's vector (SH-X0); unit vectors are mixed almost evenly."""
    for seed in range(3):
        x = torch.randn(20, 128, generator=torch.Generator().manual_seed(seed))
        x = (x - x.mean(0)) / x.std(0, unbiased=False)
        shapes = (("layer1.weight", (128, 64)),)
        weights = Hypernetwork(shapes=shapes).init(seed, x, {"layer1.weight": torch.zeros(128, 64)})

        def attention(vectors: torch.Tensor, weights: Weights = weights) -> torch.Tensor:
            query, key = (vectors @ weights[f"hyper.attention.{part}"] for part in ("query", "key"))
            return (query @ key.T).softmax(1)

        scaled, unit = attention(x), attention(x / x.norm(dim=1, keepdim=True))
        assert float(scaled.amax(1).mean()) > 0.8 and float(unit.amax(1).mean()) < 0.1
        assert int((scaled.argmax(1) == torch.arange(20)).sum()) < 5


@pytest.mark.parametrize("output", ["scaled", "anchored"])
def test_generated_matrices_start_at_a_usable_scale(output: str) -> None:
    """Generated matrices start with Glorot's spread, or close to the common model with a tenth of it."""
    method = FedSheafHN(model=GCNHead(FEATURES, CLASSES, 64), output=output, hyper_dropout=0.0, sheaf_dropout=0.0)
    _, state = method.start(federate())
    for name, shape in method.shapes:
        w = state.personal[name]
        common = method.model.init([0], torch.float64)[name][0]
        if len(shape) == 1:
            assert not bool(w.any())
            continue
        spread, glorot = float((w - (common if output == "anchored" else 0)).std()), (2 / sum(shape)) ** 0.5
        assert spread == pytest.approx(glorot * (0.1 if output == "anchored" else 1), rel=0.1), name


# -- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "refresh"),
    [("printed", 3), ("fresh", 3), ("coded", 3), ("printed", 1), ("fresh", 1), ("coded", 1), ("printed", 0)],
)
def test_embeddings_are_refreshed_on_schedule(age: str, refresh: int) -> None:
    """The embeddings that the server uses in rounds 1 to 7 come from the scheduled rounds (SH-Q5)."""
    method = build(FedSheafHNAsCoded, refresh=refresh) if age == "coded" else build(age=age, refresh=refresh)
    _, states, updates = watched(method, 7)
    fed, first = method.start(federate())
    embeddings = {-1: first.more.used} | {r: method._embeddings(fed, u.after, r) for r, u in enumerate(updates)}
    able = updates[0].active[:, None]
    embeddings = {r: torch.where(able, x, first.more.used) for r, x in embeddings.items()}
    origin = [next(r for r, x in embeddings.items() if torch.equal(x, s.more.used)) for s in states]
    expected = {
        ("printed", 3): [-1, -1, 0, 0, 0, 3, 3],
        ("fresh", 3): [-1, -1, 2, 2, 2, 5, 5],
        ("coded", 3): [-1, -1, -1, 3, 3, 3, 6],
        ("printed", 1): [0, 1, 2, 3, 4, 5, 6],
        ("fresh", 1): [0, 1, 2, 3, 4, 5, 6],
        ("coded", 1): [-1, 1, 2, 3, 4, 5, 6],
        ("printed", 0): [-1] * 7,
    }
    assert origin == expected[age, refresh]


def test_as_coded_is_local_training_with_given_biases() -> None:
    """The public code is local training, but for biases that the server generates.

    Delta is zero. Hypernetwork and attention never move, and the sheaf moves by weight decay only. The clients keep
    their matrices and heads. With generated biases of zero the result equals local training.
    """
    method = build(FedSheafHNAsCoded, warmup=0)
    trained, _, updates = watched(method, 4)
    start = method.start(federate())[1].more.servers[0].weights
    moved = {name: gap(w, start[name]) for name, w in trained.state.more.servers[0].weights.items()}
    assert max(d for name, d in moved.items() if name.startswith("hyper")) == 0
    assert min(d for name, d in moved.items() if name.startswith("sheaf") and bool(start[name].any())) > 0
    assert trained.state.more.delta == (0.0,)
    for t in range(1, 4):
        for name, w in updates[t].before.items():
            assert torch.equal(w, updates[t - 1].after[name]) != name.endswith(("1.bias", "2.bias")), name
        biases = [torch.equal(updates[t].before[n], updates[t].after[n]) for n in ("layer1.bias", "layer2.bias")]
        assert biases == [True, True]

    class Silent(FedSheafHNAsCoded):
        def deliver(self, generated: list[Weights], weights: Weights) -> Weights:
            silent = [{name: torch.zeros_like(w) for name, w in part.items()} for part in generated]
            return super().deliver(silent, weights)

    class Fixed(Local):
        local_steps = FedSheafHNAsCoded.local_steps
        received = method.received

    silent, alone = Silent(model=MODEL, **{**BARE, **QUICK, "warmup": 0}), Fixed(model=MODEL, lr=0.05, local_epochs=2)
    assert (
        largest_difference(train(silent, federate(), 4).state.personal, train(alone, federate(), 4).state.personal)
        < 1e-12
    )


def test_as_coded_goes_on_with_the_moments_of_its_warm_up() -> None:
    """Adam has taken the warm-up's steps before round 1, unless its state is reset; a second training starts anew."""

    class Counting(FedSheafHNAsCoded):
        counts: ClassVar[list[float]] = []

        def begin_round(self, fed: Federation, state: State, t: int) -> Weights:
            self.counts.append(float(self.held[0].steps["layer1.weight"][0]) if self.held else -1.0)
            return super().begin_round(fed, state, t)

    method = build(Counting, warmup=3)
    first, second = (train(method, federate(), 2).state.personal for _ in range(2))
    assert Counting.counts == [3.0, 5.0] * 2 and largest_difference(first, second) == 0
    reset = train(build(Counting, warmup=3, optimizer_state="reset"), federate(), 2).state.personal
    assert Counting.counts[4:] == [-1.0, -1.0] and largest_difference(first, reset) > 1e-3
