"""FedSheafHN compared with Algorithm 1 written out client by client."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fedsheafhn_plain import FEATURES, HIDDEN, build, federate, graph, watched
from graphs import client_graph, dense_operator, largest_difference
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Weights
from fedrepro.papers.fedsheafhn.exhibits.settings import MODULES
from fedrepro.papers.fedsheafhn.method import FedSheafHN
from fedrepro.papers.fedsheafhn.protocol import FedSheafHNAsCoded, FedSheafHNAsPrinted


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
        if not isinstance(method, FedSheafHNAsCoded):  # its clients have one Adam from the warm-up on
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
    trained, _, updates = watched(method, 5)
    clients, server = algorithm(method, 5)
    for i, weights in enumerate(clients):
        assert largest_difference({n: w[i] for n, w in updates[-1].after.items()}, weights) < 1e-9, i
    assert largest_difference(trained.state.more.servers[0].weights, server) < 1e-9
    if kind is not FedSheafHNAsCoded:
        assert max(trained.state.more.delta) > 1e-3
        moved = largest_difference(server, method.start(federate())[1].more.servers[0].weights)
        assert moved > 1e-2
