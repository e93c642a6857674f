"""Compare pFedHN and pFedGraph with plain programs of torch modules and dense matrices, and at their limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import gap, identical, largest_difference
from loop import DROPPING, GCN, task, watch
from plain import (
    F64,
    Weights,
    able,
    clients_of,
    detached,
    initial,
    leaves,
    loss,
    optimizer_of,
    options,
    row,
    step,
)
from torch import Tensor, nn

from fedrepro.baselines.pfedgraph import PFedGraph, project_onto_simplex
from fedrepro.baselines.pfedhn import PFedHN
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.federation import Federation
from fedrepro.engine.local import Local
from fedrepro.engine.method import State, Update
from fedrepro.engine.training import train
from fedrepro.errors import ArgumentError

SMALL: dict[str, Any] = {"hyper_hidden": 8, "hyper_layers": 2, "embedding": 4}

# -- pFedHN -----------------------------------------------------------------------------------------------------------


class Hyper(nn.Module):
    """Linear layers with ReLU between them, and one output layer per tensor, from a network's initial weights."""

    def __init__(self, network: Weights) -> None:
        super().__init__()
        self.parts = nn.ParameterDict({name.replace(".", "/"): w[0].clone() for name, w in network.items()})

    def forward(self, client: int) -> Weights:
        p = {name.replace("/", "."): w for name, w in self.parts.items()}
        h = p["clients"][client] @ p["hyper0.weight"] + p["hyper0.bias"]
        for i in range(1, sum(name.startswith("hyper") for name in p) // 2):
            h = torch.relu(h) @ p[f"hyper{i}.weight"] + p[f"hyper{i}.bias"]
        names = [name[4:-7] for name in p if name.startswith("out.") and name.endswith(".weight")]
        return {name: h @ p[f"out.{name}.weight"] + p[f"out.{name}.bias"] for name in names}


@pytest.mark.parametrize("kind", [{}, {"server_steps": "each"}, {"clip": 0.01}, {"personal_layers": 1}])
def test_pfedhn_is_its_plain_loop(kind: dict[str, Any]) -> None:
    """Generated weights of every client after three rounds of two local steps, torch's SGD and clipping: to 1e-9; facts
    are the norm of the last Delta over that of the weights received, and the spread of the clients' generated weights.
    """
    data, parts = task(5)
    more = {"server_lr": 0.5, "server_momentum": 0.9, "server_weight_decay": 0.01, "local_epochs": 2, **SMALL}
    method = PFedHN(model=GCN, **options(), **more, **kind)
    fed = Federation.of(data, parts, dtype=F64)
    _, state = method.start(fed)
    hyper = Hyper(state.more.networks[0])
    outcome = train(method, fed, 3)
    held, sizes = clients_of(data, parts), {name: w.shape for name, w in initial(method).items()}
    heads = {name: w for name, w in initial(method).items() if kind.get("personal_layers") and name[5] == "2"}
    kept_heads = [detached(heads) for _ in held]
    sgd = torch.optim.SGD(hyper.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    for _ in range(3):
        deltas, given = {}, {}
        for i in able(held):
            given[i] = received = {name: w.view(sizes[name]) for name, w in hyper(i).items()}
            w = leaves({**received, **kept_heads[i]})
            optimizer = optimizer_of(method, list(w.values()))
            for _ in range(2):
                step(optimizer, loss(w, held[i]))
            deltas[i] = {name: (received[name] - w[name]).detach() for name in received}
            kept_heads[i] = detached({name: w[name] for name in heads})
        for group in [[i] for i in deltas] if kind.get("server_steps") else [list(deltas)]:
            sgd.zero_grad()
            along = [(hyper(i)[name] * d.flatten()).sum() for i in group for name, d in deltas[i].items()]
            (sum(along[1:], along[0]) / len(group)).backward()
            torch.nn.utils.clip_grad_norm_(hyper.parameters(), kind.get("clip", 50.0))
            sgd.step()
    for i in range(5):
        expected = {name: w.view(sizes[name]) for name, w in hyper(i).items()}
        assert largest_difference(row(outcome.state.personal, i), {**expected, **kept_heads[i]}) < 1e-9
    (facts,) = method.facts(outcome.fed, outcome.state)
    moved, from_ = (
        sum(float(flat(detached(w)).square().sum()) for w in weights.values()) ** 0.5 for weights in (deltas, given)
    )
    assert facts["delta"] == pytest.approx(moved / from_, rel=1e-9)
    rows = torch.stack([flat(detached(hyper(i))) for i in range(5)])
    spread = sum(float((weights - rows.mean(0)).norm()) for weights in rows) / 5 / float(rows.mean(0).norm())
    assert facts["spread"] == pytest.approx(spread, rel=1e-9)


def test_one_plain_local_step_is_descent_through_the_hypernetwork() -> None:
    """K = 1, SGD: the server's step equals lr * server_lr times the gradient of the mean client loss by phi and v."""
    data, parts = task(5)
    plain: dict[str, Any] = {"optimizer": "sgd", "lr": 0.3, "server_lr": 0.2, "server_momentum": 0.0}
    method = PFedHN(model=GCN, **plain, server_weight_decay=0.0, clip=1e9, **SMALL)
    fed = Federation.of(data, parts, dtype=F64)
    _, state = method.start(fed)
    before = {name: w.clone() for name, w in state.more.networks[0].items()}
    hyper, held = Hyper(before), clients_of(data, parts)
    sizes = {name: w.shape for name, w in initial(method).items()}
    each = [loss({n: w.view(sizes[n]) for n, w in hyper(i).items()}, held[i]) for i in able(held)]
    (sum(each[1:], each[0]) / len(each)).backward()
    after = train(method, fed, 1).state.more.networks[0]
    for name, parameter in hyper.parts.items():
        key = name.replace("/", ".")
        assert parameter.grad is not None
        assert gap(after[key][0], before[key][0] - 0.3 * 0.2 * parameter.grad) < 1e-12
        assert float(parameter.grad.norm()) > 0, name
    assert float(hyper.parts["clients"].grad[able(held)].norm(dim=1).min()) > 0
    assert float(hyper.parts["clients"].grad[[0, 3]].norm()) == 0  # clients without training nodes


def test_generated_weights_start_with_the_models_spread() -> None:
    """Each matrix has the standard deviation of its Glorot initialization; biases start as the model's."""
    for seed in range(3):
        fed = Federation.of(*task(10, seed), seed, dtype=F64)
        _, state = PFedHN(model=GCN).start(fed)
        for name, w in initial(PFedHN(model=GCN), seed).items():
            generated = state.personal[name]
            if name.endswith("bias"):
                assert float(generated.abs().max()) == 0
            else:
                spread = float(w.std(correction=0))
                assert float(generated.std(correction=0)) == pytest.approx(spread, rel=1e-9)
                assert gap(generated[1], generated[2]) > 0.01
        assert state.more.networks[0]["clients"].shape == (1, 10, 1 + 10 // 4)


def test_equal_descriptions_give_equal_models() -> None:
    """Clients with equal descriptions v get equal models from the server."""
    fed = Federation.of(*task(5), dtype=F64)
    method = PFedHN(model=GCN, **SMALL)
    _, state = method.start(fed)
    network = dict(state.more.networks[0])
    network["clients"] = network["clients"][:, :1].expand(-1, 5, -1)
    for w in method.generate(network, torch.arange(5)).values():
        assert gap(w, w[:1].expand_as(w)) < 1e-15


class Ascent(PFedHN):
    """The printed sign: Delta is after minus before."""

    def aggregate(self, state: State, update: Update) -> State:
        return super().aggregate(state, update._replace(before=update.after, after=update.before))


def test_pfedhn_descends_and_the_printed_sign_ascends() -> None:
    """Training loss at the generated weights falls by a fifth in 20 rounds with Delta = before - after, and rises with
    the opposite; Delta is no zero and generated weights of clients differ.
    """
    fed, after = Federation.of(*task(5)), []
    for kind in (PFedHN, Ascent):
        method = kind(model=GCN, optimizer="sgd", lr=0.1, local_epochs=3, server_lr=0.01)
        _, state = method.start(fed)
        outcome = train(method, fed, 20)
        trained = fed.count("train") > 0
        first, last = (method.local_loss(s.personal, fed, s, 0)[trained].mean() for s in (state, outcome.state))
        after.append(float(last / first))
        (facts,) = method.facts(outcome.fed, outcome.state)
        assert facts["delta"] > 1e-3 and facts["spread"] > 1e-2
    assert after[0] < 0.8 and after[1] > 1


def test_what_pfedhn_sends() -> None:
    """P each way for every client that trains; with a personal head P_b, and heads differ."""
    fed = Federation.of(*task(5))
    for layers, scalars in ((0, 7 * 5 + 5 + 5 * 3 + 3), (1, 7 * 5 + 5)):
        outcome = train(PFedHN(model=GCN, personal_layers=layers, **SMALL), fed, 2)
        assert outcome.fed.traffic.round(1) == {"down.weights": 3 * scalars, "up.weights": 3 * scalars}
        assert outcome.fed.traffic.summary()["before"] == {}


def test_a_hypernetwork_of_biases_is_local_training() -> None:
    """One client, beta = 1, and a network whose hidden layer and output matrices are 0 give Local, to 1e-12."""

    class Biases(PFedHN):
        def start(self, fed: Federation) -> tuple[Federation, State]:
            fed, state = super().start(fed)
            (network,) = state.more.networks
            biases = {f"out.{name}.bias": w.flatten()[None] for name, w in initial(self).items()}
            network.update({name: torch.zeros_like(w) for name, w in network.items()} | biases)
            return fed, State({}, self._written(fed, state.more, state.personal), state.more)

    fed = Federation.of(*task(1), dtype=F64)
    common: dict[str, Any] = {"model": DROPPING, "local_epochs": 3, "optimizer_state": "reset"}
    server: dict[str, Any] = {"server_lr": 1.0, "server_momentum": 0.0, "server_weight_decay": 0.0, "clip": 1e9}
    generated, alone = (train(m, fed, 3).state.personal for m in (Biases(**common, **server), Local(**common)))
    assert set(generated) == set(alone)
    assert largest_difference(row(generated, 0), row(alone, 0)) < 1e-12
    assert largest_difference(row(generated, 0), initial(Local(**common))) > 1e-2


# -- pFedGraph --------------------------------------------------------------------------------------------------------


def bisected(row: Tensor) -> Tensor:
    """The projection onto the simplex by bisection on its threshold."""
    low, high = float(row.min()) - 1, float(row.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((row - middle).clamp(min=0).sum()) > 1 else (low, middle)
    return (row - low).clamp(min=0)


def test_the_projection_is_the_nearest_point_of_the_simplex() -> None:
    """Against bisection on rows of several sizes, and against random points of the simplex, none of which is nearer."""
    generator = torch.Generator().manual_seed(0)
    for n in (1, 2, 5, 20):
        rows = 2 * torch.randn(6, n, generator=generator, dtype=F64)
        got = project_onto_simplex(rows)
        assert gap(got, torch.stack([bisected(r) for r in rows])) < 1e-12
        assert float((got.sum(1) - 1).abs().max()) < 1e-12 and float(got.min()) >= 0
        for _ in range(50):
            other = torch.rand(6, n, generator=generator, dtype=F64)
            other = other / other.sum(1, keepdim=True)
            assert bool(((other - rows).norm(dim=1) >= (got - rows).norm(dim=1) - 1e-12).all())


def flat(w: Weights) -> Tensor:
    return torch.cat([value.flatten() for value in w.values()])


@pytest.mark.parametrize("sign", ["attract", "coded"])
@pytest.mark.parametrize("kind", [{}, {"threshold": 1.0, "alpha": 0.2}, {"compare": "head"}])
def test_pfedgraph_is_its_plain_loop(kind: dict[str, Any], sign: str) -> None:
    """Mixed weights of all clients after three rounds, two of five without training nodes: to 1e-9."""
    data, parts = task(5)
    method = PFedGraph(model=GCN, local_epochs=3, penalty=0.5, penalty_sign=sign, **options(), **kind)
    outcome = train(method, Federation.of(data, parts, dtype=F64), 3)
    held, start = clients_of(data, parts), initial(method)
    models, reference = [detached(start) for _ in held], [None] * 5
    names = [name for name in start if kind.get("compare") != "head" or name[5] == "2"]
    who = able(held)
    counts = torch.tensor([int(held[i].train.sum()) for i in who], dtype=F64)
    p = counts / counts.sum()
    for _ in range(3):
        trained = {}
        for i in who:
            w = leaves(models[i])
            optimizer = optimizer_of(method, list(w.values()))
            for _ in range(3):
                value = loss(w, held[i])
                if reference[i] is not None:
                    cosine = flat(w) @ reference[i] / flat(w).norm()
                    value = value + (0.5 if sign == "coded" else -0.5) * cosine
                step(optimizer, value)
            trained[i] = detached(w)
        away = {i: flat({n: trained[i][n] - start[n] for n in names}) for i in who}
        for i in range(5):
            a = p
            if i in who:
                s = torch.stack([torch.cosine_similarity(away[i], away[j], 0) for j in who])
                s[s > method.threshold] = 1.0
                a = bisected(p + s / (2 * method.alpha))
            models[i] = {n: sum(x * trained[j][n] for x, j in zip(a, who)) for n in start}
            reference[i] = sum(x * flat(trained[j]) / flat(trained[j]).norm() for x, j in zip(a, who))
    for i in range(5):
        assert largest_difference(row(outcome.state.personal, i), models[i]) < 1e-9


def test_large_alpha_is_fedavg_and_small_alpha_local() -> None:
    """Without penalty: w = p gives FedAvg by training nodes (to 1e-9), w_ii = 1 gives Local (to 1e-12)."""
    fed = Federation.of(*task(5), dtype=F64)
    common: dict[str, Any] = {"model": DROPPING, "local_epochs": 2, "optimizer_state": "reset"}
    averaged = train(FedAvg(average="train", **common), fed, 3).state.shared
    alone = train(Local(**common), fed, 3).state.personal
    off: dict[str, Any] = {**common, "penalty": 0.0, "threshold": 1.0}
    wide, narrow = (train(PFedGraph(alpha=a, **off), fed, 3).state.personal for a in (1e12, 1e-6))
    for i in range(5):
        assert largest_difference(row(wide, i), row(averaged, 0)) < 1e-9
    for i in (1, 2, 4):
        assert largest_difference(row(narrow, i), row(alone, i)) < 1e-12
    assert largest_difference(row(averaged, 0), row(alone, 4)) > 1e-2


def test_collaboration_follows_its_closed_form() -> None:
    """Unclipped rows are p + (S - mean S) / (2 alpha); equal similarities give p for every alpha."""
    generator = torch.Generator().manual_seed(0)
    start = {"layer1.weight": torch.zeros(4, 3, dtype=F64), "layer2.weight": torch.zeros(3, 2, dtype=F64)}
    sent = {n: torch.randn(5, *w.shape, generator=generator, dtype=F64) for n, w in start.items()}
    p = torch.tensor([0.3, 0.2, 0.2, 0.2, 0.1], dtype=F64)
    x = torch.cat([w.flatten(1) for w in sent.values()], 1)
    s = torch.corrcoef(torch.cat([x, -x], 1))  # the correlation of columns with mean 0 is the cosine
    s = torch.where(s > 0.9, 1.0, s)
    w = PFedGraph(model=GCN, alpha=40.0).collaboration(sent, start, p)
    assert gap(w, p + (s - s.mean(1, keepdim=True)) / 80) < 1e-12
    assert float((w.sum(1) - 1).abs().max()) < 1e-12 and gap(w[0], w[1]) > 1e-3
    alike = {n: v[:1].expand_as(v) for n, v in sent.items()}
    for alpha in (0.01, 1.0, 100.0):
        assert gap(PFedGraph(model=GCN, alpha=alpha).collaboration(alike, start, p), p.expand(5, -1)) < 1e-12


def test_the_reference_pulls_from_the_second_round_on() -> None:
    """With and without penalty the first round is bitwise the same, the second is not."""
    fed, rounds = Federation.of(*task(5)), []
    for penalty in (0.0, 0.1):
        method, updates = watch(PFedGraph(model=GCN, penalty=penalty))
        train(method, fed, 2)
        rounds.append(updates)
    assert identical(rounds[0][0].after, rounds[1][0].after)
    assert largest_difference(rounds[0][1].after, rounds[1][1].after) > 1e-5


@pytest.mark.parametrize(
    ("clients", "participation", "trained", "received"), [(1, 1.0, 1, 1), (5, 1.0, 3, 5), (5, 0.5, 2, 4)]
)
def test_what_pfedgraph_sends(clients: int, participation: float, trained: int, received: int) -> None:
    """P up from clients that train, 2 P down also to those without training nodes, P down without penalty."""
    fed = Federation.of(*task(clients))
    scalars = 7 * 5 + 5 + 5 * 3 + 3
    for penalty in (0.01, 0.0):
        sent = train(PFedGraph(model=GCN, participation=participation, penalty=penalty), fed, 2).fed.traffic
        expected = {"up.weights": trained * scalars, "down.weights": received * scalars}
        expected |= {"down.reference": received * scalars} if penalty else {}
        assert sent.round(0) == sent.round(1) == expected


def test_facts_of_pfedgraph() -> None:
    """Entropy between 0 and log N; the mean weight of a client in its own average."""
    method = PFedGraph(model=GCN, alpha=1.0)
    made = train(method, Federation.of(*task(10)), 3)
    (facts,) = method.facts(made.fed, made.state)
    (w,) = made.state.more.collaboration
    assert 0 < facts["entropy"] < torch.log(torch.tensor(8.0)) and facts["self_weight"] == float(w.diagonal().mean())


def test_bad_options_are_refused() -> None:
    """By name, in both methods."""
    for wrong in ({"server_steps": "two"}, {"clip": 0.0}, {"hyper_hidden": 0}, {"personal_layers": 2}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            PFedHN(model=GCN, **wrong)  # type: ignore[arg-type]
    for wrong in ({"alpha": 0.0}, {"penalty": -1.0}, {"penalty_sign": "plus"}, {"compare": "base"}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            PFedGraph(model=GCN, **wrong)  # type: ignore[arg-type]
