"""FedSheafHN compared with Algorithm 1 written out client by client; its messages, frozen clients and options."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import block_model, client_graph, dense_operator, gap, largest_difference, unequal_parts, without_labels
from torch import Tensor
from torch_geometric.data import Data

from fedrepro import registry
from fedrepro.baselines import malicious
from fedrepro.engine.federation import Federation, Weights
from fedrepro.engine.local import Local
from fedrepro.engine.method import State, Update
from fedrepro.engine.nn.models import GAT, GCN, GCNHead
from fedrepro.engine.training import Trained, train
from fedrepro.errors import ArgumentError
from fedrepro.papers.fedsheafhn.exhibits.settings import DATASETS, MODULES, NETWORKS, settings, setup
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.protocol import FedSheafHNAsCoded, FedSheafHNAsPrinted
from fedrepro.papers.fedsheafhn.server import Server

CLIENTS, FEATURES, CLASSES, HIDDEN = 6, 7, 3, 5
MODEL = GCNHead(FEATURES, CLASSES, HIDDEN)
BARE: dict[str, Any] = {"sheaf_dropout": 0.0, "hyper_dropout": 0.0, "hyper_hidden": 8, "channels": 4, "steps": 2}
QUICK: dict[str, Any] = {"lr": 0.05, "local_epochs": 2, "hyper_lr": 0.02, "sheaf_lr": 0.01, "neighbours": 2}
UNLABELLED = [2]


def graph(seed: int = 0) -> tuple[Data, list[Tensor]]:
    data, parts = block_model(48, degree=8, seed=seed), unequal_parts(48, CLIENTS, seed)
    return without_labels(data, parts, UNLABELLED), parts


def federate(seed: int = 0, dtype: torch.dtype = torch.float64) -> Federation:
    return Federation.of(*graph(seed), seed, dtype=dtype)


def build(kind: type[FedSheafHN] = FedSheafHN, **options: Any) -> FedSheafHN:
    return kind(model=MODEL, **{**BARE, **QUICK, **options})


def watched(
    method: FedSheafHN, rounds: int, fed: Federation | None = None
) -> tuple[Trained, list[State], list[Update]]:
    """Train, and return the state after and the update of every round too."""
    states: list[State] = []
    updates: list[Update] = []

    class Watched(type(method)):  # type: ignore[misc]
        def aggregate(self, state: State, update: Update) -> State:
            updates.append(update)
            states.append(super().aggregate(state, update))
            return states[-1]

    options = {item.name: getattr(method, item.name) for item in fields(method)}
    return train(Watched(**options), fed or federate(), rounds), states, updates


# -- Algorithm 1, client by client ------------------------------------------------------------------------------------


class Client:
    """One client in plain torch, with dense propagation and `torch.optim.Adam`."""

    def __init__(self, data: Data, part: Tensor) -> None:
        graph = client_graph(data, part)
        self.x, self.y, self.mask = graph.x, graph.y, graph.train_mask
        self.s = torch.from_numpy(dense_operator("gcn", graph.edge_index, len(graph.y)))
        self.weights: Weights = {}
        self.optimizer: torch.optim.Optimizer | None = None

    def embed(self) -> Tensor:
        w = self.weights
        h = F.relu(self.s @ (self.x @ w["layer1.weight"]) + w["layer1.bias"])
        return self.s @ (h @ w["layer2.weight"]) + w["layer2.bias"]

    def train(self, method: FedSheafHN, epochs: int, frozen: tuple[str, ...] = ()) -> None:
        """Train local epochs; the optimizer keeps its moments from call to call."""
        if not bool(self.mask.any()):
            return
        if self.optimizer is None:
            self.optimizer = torch.optim.Adam(self.weights.values(), lr=method.lr, weight_decay=method.weight_decay)
        for _ in range(epochs):
            self.optimizer.zero_grad()
            out = F.relu(self.embed()) @ self.weights["layer3.weight"] + self.weights["layer3.bias"]
            F.cross_entropy(out[self.mask], self.y[self.mask]).backward()
            for name in frozen:
                self.weights[name].grad = None
            self.optimizer.step()

    def load(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, w in weights.items():
                if name in self.weights:
                    self.weights[name].copy_(w)
                else:
                    self.weights[name] = w.clone().requires_grad_()

    def state(self) -> Weights:
        return {name: w.detach().clone() for name, w in self.weights.items()}


def sheaf_layers(method: FedSheafHN, w: Weights, h: Tensor, edges: list[tuple[int, int]]) -> Tensor:
    """Run Eq. 5 to 8 for d = 1, the Laplacian entry by entry."""
    delta = torch.zeros(0)
    for t in range(method.steps):
        if t == 0 or method.maps_made == "layer":
            laplacian = torch.zeros(len(h), len(h), dtype=h.dtype)
            for u, v in edges:
                fu, fv = restriction(method, w, h, t, u, v), restriction(method, w, h, t, v, u)
                one = torch.zeros(len(h), dtype=h.dtype).index_add(0, torch.tensor([u, v]), torch.stack([fu, -fv]))
                laplacian = laplacian + one[:, None] * one
            root = (laplacian.diagonal() + method.augmented).rsqrt()
            delta = root[:, None] * laplacian * root
        keep = 1 + torch.tanh(w[f"sheaf.{t}.eps"]) if method.gate else 1
        h = keep * h - F.elu(delta @ (h * w[f"sheaf.{t}.w1"]) @ w[f"sheaf.{t}.w2"])
    return h


def restriction(method: FedSheafHN, w: Weights, h: Tensor, t: int, u: int, v: int) -> Tensor:
    """Return F_{u, (u, v)}, which is one number."""
    z = torch.cat([h[u], h[v]])
    if method.learner == "mlp":
        z = F.relu(z @ w[f"sheaf.{t}.map0.weight"] + w[f"sheaf.{t}.map0.bias"])
        return torch.tanh(z @ w[f"sheaf.{t}.map1.weight"])[0]
    return torch.tanh(z @ w[f"sheaf.{t}.map0.weight"])[0]


def generate(method: FedSheafHN, w: Weights, x: Tensor) -> Weights:
    """Run Eq. 4 to 11 in plain torch."""
    if method.diffusion == "sheaf":
        unit = x.detach() / x.detach().norm(dim=1, keepdim=True)
        near = (unit @ unit.T - 2 * torch.eye(len(x))).argsort(1, descending=True)[:, : method.neighbours]
        edges = {(min(i, int(j)), max(i, int(j))) for i in range(len(x)) for j in near[i]}
        if method.graph == "complete":
            edges = {(i, j) for j in range(len(x)) for i in range(j)}
        h = F.elu(x @ w["sheaf.encode.weight"] + w["sheaf.encode.bias"])
        h = sheaf_layers(method, w, h, sorted(edges))
        x = h @ w["sheaf.decode.weight"] + w["sheaf.decode.bias"]
    if method.attention == "softmax":
        query, key, value = (x @ w[f"hyper.attention.{part}"] for part in ("query", "key", "value"))
        x = (query @ key.T).softmax(1) @ value
    elif method.attention == "free":
        x = w["hyper.attention"] @ x
    for i in range(method.hyper_layers):
        x = F.relu(x @ w[f"hyper.mlp{i}.weight"] + w[f"hyper.mlp{i}.bias"])
    out = {}
    for name, shape in (("layer1", (FEATURES, HIDDEN)), ("layer2", (HIDDEN, HIDDEN))):
        scale = 1.0 if method.output == "plain" else (2 / sum(shape)) ** 0.5
        for part, size in (("weight", shape), ("bias", shape[1:])):
            flat = x @ w[f"hyper.out.{name}.{part}.weight"] + w[f"hyper.out.{name}.{part}.bias"]
            out[f"{name}.{part}"] = scale * flat.view(-1, *size)
    return out


def algorithm(method: FedSheafHN, rounds: int) -> tuple[list[Weights], Weights]:
    """Run Algorithm 1 with the method's sign.

    Returns:
        Each client's weights after its last local training, and the server's weights.
    """
    data, parts = graph()
    clients = [Client(data, part) for part in parts]
    start = {name: w[0] for name, w in method.model.init([0], torch.float64).items()}
    for client in clients:
        client.load(start)
        client.train(method, method.local_epochs if method.warmup < 0 else method.warmup)
        if not isinstance(method, FedSheafHNAsCoded):  # whose clients have one Adam from the warm-up on
            client.optimizer = None
    server = {
        name: w.clone().requires_grad_() for name, w in method.start(federate())[1].more.servers[0].weights.items()
    }
    rates = {"sheaf": (method.sheaf_lr, method.sheaf_weight_decay), "hyper": (method.hyper_lr, 0.0)}
    groups = [
        {"params": [w for n, w in server.items() if n.startswith(part)], "lr": lr, "weight_decay": decay}
        for part, (lr, decay) in rates.items()
        if any(n.startswith(part) for n in server)
    ]
    optimizer = torch.optim.Adam(groups)
    sent = used = torch.stack([client.embed().mean(0).detach() for client in clients])
    coded = isinstance(method, FedSheafHNAsCoded)
    for r in range(rounds):
        x = used
        if method.vectors == "one-hot":
            x = torch.eye(len(used), dtype=used.dtype)
        elif method.standardized:
            x = (used - used.mean(0)) / used.std(0, correction=0)
        generated = generate(method, server, x)
        loss = torch.zeros((), dtype=torch.float64)
        for i, client in enumerate(clients):
            names = [n for n in generated if not coded or n.endswith("bias")]
            client.load({name: generated[name][i].detach() for name in names})
            client.train(method, method.local_epochs, tuple(names) if coded else ())
            for name in generated:
                delta = client.weights[name].detach() - generated[name][i].detach()  # as printed
                sign = 0 if coded else 1 if method.sign == "ascent" else -1
                loss = loss + (sign * delta * generated[name][i]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        able = torch.tensor([bool(client.mask.any()) for client in clients])[:, None]
        new = torch.stack([client.embed().mean(0).detach() for client in clients])
        sends = r if method.age == "printed" else r + 1
        if coded:  # its main loop: curr_rnd != 0 and curr_rnd % 5 == 0
            used = torch.where(able, new, used) if r and r % method.refresh == 0 else used
            continue
        if method.refresh and sends % method.refresh == 0:
            sent = torch.where(able, new, sent)
        if method.refresh and (r + 1) % method.refresh == 0:
            used = sent
    return [client.state() for client in clients], {name: w.detach() for name, w in server.items()}


ROWS: dict[str, tuple[type[FedSheafHN], dict[str, Any]]] = {
    "corrected": (FedSheafHN, {"refresh": 2}),
    "fresh": (FedSheafHN, {"refresh": 2, "age": "fresh", "weight_decay": 0.01}),
    "as printed": (FedSheafHNAsPrinted, {"refresh": 3}),
    "as coded": (FedSheafHNAsCoded, {"refresh": 2, "warmup": 3}),
    "raw, free": (FedSheafHN, {"standardized": False, "attention": "free", "graph": "complete", "output": "plain"}),
    "coded sheaf": (FedSheafHN, {"learner": "linear", "maps_made": "once", "gate": True, "output": "scaled"}),
    **{name: (FedSheafHN, options) for name, options in MODULES.items()},
}


@pytest.mark.parametrize("name", ROWS)
def test_rounds_equal_algorithm_1(name: str) -> None:
    """Five rounds of every variant equal the plain program within 1e-9, for clients and server."""
    kind, options = ROWS[name]
    method = build(kind, **options)
    made, _, updates = watched(method, 5)
    clients, server = algorithm(method, 5)
    for i, weights in enumerate(clients):
        assert largest_difference({n: w[i] for n, w in updates[-1].after.items()}, weights) < 1e-9, i
    assert largest_difference(made.state.more.servers[0].weights, server) < 1e-9
    if kind is not FedSheafHNAsCoded:
        assert max(made.state.more.delta) > 1e-3
        moved = largest_difference(server, method.start(federate())[1].more.servers[0].weights)
        assert moved > 1e-2


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
    found = state.more.servers[0].gradient(method.vectors_of(state.more.used), 0, change)
    for name, g in expected.items():
        assert float(g.norm()) > 0, name
        assert gap(found[name], 0.1 * g) < 1e-12, name


def test_server_dropout_is_a_function_of_seed_round_and_place() -> None:
    """A share p of the entries is zero and the others are scaled; another seed, round or place draws others."""
    server: Server = build(hyper_dropout=0.3).start(federate())[1].more.servers[0]
    ones = torch.ones(200, 100, dtype=torch.float64)
    found = server._dropout(4)(ones, 0.3, "mlp0")
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((found == 0).double().mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(found, server._dropout(4)(ones, 0.3, "mlp0"))
    for other in (replace(server, seed=1)._dropout(4)(ones, 0.3, "mlp0"), server._dropout(5)(ones, 0.3, "mlp0")):
        assert float((found == other).double().mean()) < 0.7
    assert float((found == server._dropout(4)(ones, 0.3, "mlp1")).double().mean()) < 0.7
    assert server._dropout(4)(ones, 0.0, "mlp0") is ones


def test_plain_steps() -> None:
    """With "sgd" the server subtracts its rates times gradient and weight decay (SH-Q6)."""
    method = build(server_optimizer="sgd", hyper_weight_decay=0.1, sheaf_weight_decay=0.2, hyper_lr=1e-3, sheaf_lr=2e-3)
    _, start = method.start(federate())
    made, _, updates = watched(method, 1)
    change = {name: updates[0].before[name] - updates[0].after[name] for name, _ in method.shapes}
    server: Server = start.more.servers[0]
    gradient = server.gradient(method.vectors_of(start.more.used), 0, change)
    for name, w in made.state.more.servers[0].weights.items():
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
    made = {-1: first.more.used} | {r: method._embeddings(fed, u.after, r) for r, u in enumerate(updates)}
    able = updates[0].active[:, None]
    made = {r: torch.where(able, x, first.more.used) for r, x in made.items()}
    origin = [next(r for r, x in made.items() if torch.equal(x, s.more.used)) for s in states]
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
    made, _, updates = watched(method, 4)
    start = method.start(federate())[1].more.servers[0].weights
    moved = {name: gap(w, start[name]) for name, w in made.state.more.servers[0].weights.items()}
    assert max(d for name, d in moved.items() if name.startswith("hyper")) == 0
    assert min(d for name, d in moved.items() if name.startswith("sheaf") and bool(start[name].any())) > 0
    assert made.state.more.delta == (0.0,)
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


# -- alone, beside others, in chunks ----------------------------------------------------------------------------------


def noisy(**options: Any) -> FedSheafHN:
    method = build(sheaf_dropout=0.3, hyper_dropout=0.3, malicious=0.34, attack="gaussian", refresh=2, **options)
    return replace(method, model=replace(MODEL, dropout=0.4))


def test_runs_side_by_side_equal_runs_alone() -> None:
    """Three runs side by side give what each gives by itself, with dropout and forged embeddings."""
    method = noisy()
    alone = [train(method, federate(seed), 4) for seed in range(3)]
    both = train(method, Federation.stack([federate(seed) for seed in range(3)]), 4)
    for run, made in enumerate(alone):
        mine = both.fed.run == run
        assert largest_difference({n: w[mine] for n, w in both.state.personal.items()}, made.state.personal) < 1e-10
        servers = both.state.more.servers[run].weights, made.state.more.servers[0].weights
        assert largest_difference(*servers) < 1e-10
        for name, values in both.history.result(run)["after"]["best"].items():
            assert values == pytest.approx(made.history.result(0)["after"]["best"][name], abs=1e-9), name
    assert gap(both.state.more.used[:CLIENTS], both.state.more.used[CLIENTS : 2 * CLIENTS]) > 1e-3


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_change_nothing(chunk: int) -> None:
    """A loop over clients gives the numbers of the stack."""
    method = noisy()
    ways = [train(method, federate(), 3, chunk=c) for c in (None, chunk)]
    assert largest_difference(*(made.state.personal for made in ways)) < 1e-12


def test_permuting_clients_permutes_results() -> None:
    """No result depends on a client's number, apart from one-hot vectors, dropout and the free attention."""
    data, parts = graph()
    order = [3, 0, 5, 1, 4, 2]
    method = build(refresh=2)
    one = train(method, Federation.of(data, parts, 0, dtype=torch.float64), 4).state.personal
    two = train(method, Federation.of(data, [parts[i] for i in order], 0, dtype=torch.float64), 4).state.personal
    assert largest_difference({name: w[order] for name, w in one.items()}, two) < 1e-9


def test_a_client_without_labels_never_moves() -> None:
    """A client without labels keeps its first head and embedding, and its Delta is zero."""
    method = build(refresh=1)
    made, _, updates = watched(method, 3)
    _, first = method.start(federate())
    client = UNLABELLED[0]
    assert torch.equal(made.state.more.used[client], first.more.used[client])
    for name in updates[-1].after:
        assert torch.equal(updates[-1].after[name][client], updates[-1].before[name][client])
    assert torch.equal(made.state.personal["layer3.weight"][client], MODEL.init([0], torch.float64)["layer3.weight"][0])


def test_clients_not_drawn_do_not_move() -> None:
    """Clients that are not drawn in a round keep their head and their last embedding."""
    _, states, updates = watched(build(refresh=1, participation=0.5), 3)
    for before, after, update in zip(states, states[1:], updates[1:]):
        out = ~update.active
        assert int(out.sum()) == 4
        assert torch.equal(after.more.used[out], before.more.used[out])
        assert torch.equal(after.personal["layer3.bias"][out], before.personal["layer3.bias"][out])


# -- messages, attacks, facts -----------------------------------------------------------------------------------------


def test_messages_are_counted() -> None:
    """Backbone and change are counted each round, embeddings before training and in the rounds that send them."""
    each = FEATURES * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN
    traffic = train(build(refresh=2), federate(), 4).fed.traffic
    assert traffic.summary()["before"] == {"up.embedding": CLIENTS * HIDDEN}
    plain = {"down.generated weights": 5 * each, "up.weight change": 5 * each}
    for t in range(4):
        assert traffic.round(t) == (plain | {"up.embedding": 5 * HIDDEN} if t % 2 == 0 else plain), t
    silent = train(build(vectors="one-hot", diffusion="none"), federate(), 4).fed.traffic
    assert silent.round(0) == plain
    assert sum(silent.summary()["before"].values()) == 0


@pytest.mark.parametrize("attack", malicious.ATTACKS)
def test_forged_embeddings(attack: str) -> None:
    """A third of each run's clients sends equal or independent entries, drawn anew for every message."""
    fed = Federation.stack([federate(0), federate(1)])
    true = torch.randn(fed.clients, 4000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = malicious.forge_embeddings(fed, true, 0.34, attack, 2.0, 7)
    bad = malicious.malicious_clients(fed, 0.34)
    assert bad.view(2, -1).sum(1).tolist() == [2, 2]
    assert torch.equal(found[~bad], true[~bad])
    for row in found[bad]:
        if attack == "same":
            assert len(row.unique()) == 1
        else:
            assert float(row.std()) == pytest.approx(2.0, rel=0.05)
    assert not torch.equal(found[bad], malicious.forge_embeddings(fed, true, 0.34, attack, 2.0, 8)[bad])
    alone = malicious.forge_embeddings(federate(1), true[CLIENTS:], 0.34, attack, 2.0, 7)
    assert torch.equal(alone, found[CLIENTS:])
    assert malicious.forge_embeddings(fed, true, 0.0, attack, 2.0, 7) is true
    with pytest.raises(ArgumentError, match="malicious must be a share that leaves an honest client"):
        malicious.forge_embeddings(fed, true, 0.95, attack, 2.0, 7)
    draws = [malicious.forge_embeddings(fed, true[:, :1], 0.34, attack, 2.0, t)[bad] for t in range(500)]
    assert float(torch.cat(draws).std()) == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize("kind", [FedSheafHN, FedSheafHNAsCoded])
def test_a_client_sees_every_tensor_it_is_sent(kind: type[FedSheafHN]) -> None:
    """A change of one generated tensor at one client changes the training of that client only."""
    method = build(kind)
    fed, state = method.start(federate())
    assert set(method.received) == (
        {n for n, _ in method.shapes} if kind is FedSheafHN else {"layer1.bias", "layer2.bias"}
    )

    def trained(weights: Weights) -> Weights:
        leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
        loss = method.local_loss(leaves, fed.at(0, 0), state, 0).sum()
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))

    before = trained(state.personal)
    for name in method.received:
        bumped = state.personal[name].clone()
        bumped[4] += 0.3
        after = trained({**state.personal, name: bumped})
        moved = [any(bool((after[n][i] != w[i]).any()) for n, w in before.items()) for i in range(CLIENTS)]
        assert moved == [i == 4 for i in range(CLIENTS)], name


def test_forged_embeddings_reach_the_server_and_no_one_else() -> None:
    """The server uses forged embeddings of malicious clients and true ones of all others."""
    first = {share: build(malicious=share).start(federate())[1] for share in (0.0, 0.34)}
    bad = malicious.malicious_clients(federate(), 0.34)
    differ = (first[0.0].more.used != first[0.34].more.used).any(1)
    assert torch.equal(differ, bad)
    heads = [state.personal["layer3.weight"] for state in first.values()]
    assert torch.equal(*heads)


def test_facts() -> None:
    """The facts agree with the history's scores, and the server's numbers are not trivial."""
    method = build(malicious=0.34, refresh=1)
    made, _, _ = watched(method, 4, Federation.stack([federate(0), federate(1)]))
    for run, facts in enumerate(method.facts(made.fed, made.state)):
        scored = [a for a in facts["client_test"] if a is not None]
        last = made.history.result(run)["after"]["last"]["test_clients"]
        assert np.mean(scored) == pytest.approx(last) == pytest.approx(facts["client_mean"])
        assert np.std(scored) == pytest.approx(facts["client_sd"])
        bad = malicious.malicious_clients(made.fed, 0.34)[made.fed.run == run].tolist()
        assert facts["malicious_clients"] == [i for i, forged in enumerate(bad) if forged]
        honest = [a for a, b in zip(facts["client_test"], bad) if a is not None and not b]
        assert facts["honest_test"] == pytest.approx(np.mean(honest))
        assert facts["delta"] > 0.01 and facts["server_moved"] > 0.01 and facts["generated_spread"] > 0.01
        assert 0 < facts["map_size"] < 1 and facts["diffusion_change"] > 0.01
    assert "map_size" not in method.facts(*_trained(build(diffusion="gcn")))[0]


def _trained(method: FedSheafHN) -> tuple[Federation, State]:
    _, fed, state = train(method, federate(), 1)
    return fed, state


def test_rows_of_the_tables_differ() -> None:
    """Every row of Tables 4 and 5 is a separate run."""
    rows = {**MODULES, **NETWORKS}
    made = {
        name: train(build(**options), federate(), 7).state.personal["layer1.weight"] for name, options in rows.items()
    }
    assert torch.equal(made["+ Dynamic embedding"], made["w/ Sheaf diffusion"])
    different = [w for name, w in made.items() if name != "w/ Sheaf diffusion"]
    assert min(gap(a, b) for i, a in enumerate(different) for b in different[:i]) > 1e-6


def test_generated_features_are_prepared_as_the_graphs_own() -> None:
    """FedSage+ divides generated features by their row sums if the graph's features are divided (SH-B1)."""
    asked = {d: "row-sum" in setup(d, 10)["prepare"] for d in DATASETS}
    assert asked == {d: settings("FedSage+", d, 10).get("row_sum", False) for d in DATASETS}
    assert set(asked.values()) == {True, False}


def test_the_last_layer_of_a_plain_gcn_is_its_head() -> None:
    """With a plain GCN one convolution is generated and the second stays local (SH-Q11)."""
    method = FedSheafHN(model=GCN(FEATURES, CLASSES, HIDDEN), **BARE, **QUICK)
    made = train(method, federate(), 2)
    assert method.personal == ("layer2.weight", "layer2.bias")
    assert [name for name, _ in method.shapes] == ["layer1.weight", "layer1.bias"]
    assert made.state.more.used.shape == (CLIENTS, HIDDEN)


def test_registered_names() -> None:
    """The three registered variants differ in the sign of the server's step."""
    kinds = [registry.load("train", f"FedSheafHN{end}") for end in ("", " (as printed)", " (as coded)")]
    assert kinds == [FedSheafHN, FedSheafHNAsPrinted, FedSheafHNAsCoded]
    assert [kind(model=MODEL).sign for kind in kinds] == ["descent", "ascent", "descent"]


def test_every_option_reaches_its_part() -> None:
    """Each option of a part of the server arrives there under the part's own name for it."""
    other_names = {"kind": "diffusion", "share": "malicious"}
    other_names |= {"hidden": "hyper_hidden", "layers": "hyper_layers"}
    changed = {"kind": "gat", "maps": "general", "learner": "linear", "maps_made": "once", "attention": "free"}
    changed |= {"output": "plain", "attack": "gaussian"}
    default = FedSheafHN(model=MODEL)
    for part, dropout in (("collaboration", "sheaf_dropout"), ("hyper", "hyper_dropout"), ("forgery", "")):
        before = getattr(default, part)
        for item in fields(before):
            if item.name == "shapes":
                continue
            value = getattr(before, item.name)
            new = not value if isinstance(value, bool) else changed.get(item.name) or value + type(value)(1) / 2
            new = value + 1 if type(value) is int else new
            option = dropout if item.name == "dropout" else other_names.get(item.name, item.name)
            method = FedSheafHN(model=MODEL, **{option: new})
            assert getattr(method, part) == replace(before, **{item.name: new}), option


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sign": "up"}, "sign"),
        ({"age": "old"}, "age"),
        ({"vectors": "random"}, "vectors"),
        ({"graph": "ring"}, "graph"),
        ({"diffusion": "sgc"}, "diffusion"),
        ({"attention": "linear"}, "attention"),
        ({"output": "zero"}, "output"),
        ({"warmup": -2}, "warmup"),
        ({"refresh": -1}, "refresh"),
        ({"neighbours": -1}, "neighbours"),
        ({"hyper_layers": 0}, "hyper_layers"),
        ({"hyper_dropout": 1.0}, "hyper_dropout"),
        ({"malicious": 1.0}, "malicious"),
        ({"attack": "zero"}, "attack"),
        ({"tau": 0.0}, "tau"),
        ({"server_optimizer": "rmsprop"}, "optimizer"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], words: str) -> None:
    """An impossible option is named before anything is trained."""
    with pytest.raises(ArgumentError, match=words):
        FedSheafHN(model=MODEL, **options)


def test_wrong_models_are_errors() -> None:
    """The model must be a GCN with a layer before the head."""
    with pytest.raises(ArgumentError, match="a GCN"):
        FedSheafHN(model=GAT(FEATURES, CLASSES))
    with pytest.raises(ArgumentError, match="the last of which is the head"):
        FedSheafHN(model=GCN(FEATURES, CLASSES, layers=1))
