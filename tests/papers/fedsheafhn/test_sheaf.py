"""Sheaf Laplacian, normalisation and diffusion compared with their definitions written out in NumPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from graphs import gap
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv

from fedrepro.errors import ArgumentError
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedsheafhn.sheaf import Diffusion, complete, keep_all, nearest, normalised_adjacency

NODES, EXACT = 7, 1e-12


def pairs(seed: int = 0) -> Tensor:
    """Return the edges of a connected graph with a node of degree one."""
    edges = {(i, i + 1) for i in range(NODES - 1)} | {(0, 3), (1, 4), (2, 5)} if not seed else {(0, 2), (1, 2), (2, 4)}
    return torch.tensor(sorted(edges)).T


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def maps(kind: str, stalk: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    both = sheaf.as_maps(normal(2 * count, sheaf.map_size(kind, stalk), seed=seed), kind, stalk)
    return both[:count], both[count:]


def coboundary(first: Tensor, second: Tensor, edges: Tensor) -> np.ndarray:
    """Return delta, where (delta x)_e = F_{u,e} x_u - F_{v,e} x_v, one block row per edge."""
    d = first.shape[1]
    delta = np.zeros((edges.shape[1] * d, NODES * d))
    for e, (u, v) in enumerate(edges.T.tolist()):
        delta[e * d : (e + 1) * d, u * d : (u + 1) * d] = first[e].numpy()
        delta[e * d : (e + 1) * d, v * d : (v + 1) * d] = -second[e].numpy()
    return delta


def by_definition(first: Tensor, second: Tensor, edges: Tensor, x: np.ndarray) -> np.ndarray:
    """Apply Eq. 5 node by node."""
    d = first.shape[1]
    out = np.zeros_like(x)
    for e, (u, v) in enumerate(edges.T.tolist()):
        gone = first[e].numpy() @ x[u * d : (u + 1) * d] - second[e].numpy() @ x[v * d : (v + 1) * d]
        out[u * d : (u + 1) * d] += first[e].numpy().T @ gone
        out[v * d : (v + 1) * d] -= second[e].numpy().T @ gone
    return out


KINDS = pytest.mark.parametrize(("kind", "stalk"), list(product(sheaf.MAPS, (1, 2, 3))))


@KINDS
def test_laplacian_is_eq_5(kind: str, stalk: int) -> None:
    """The Laplacian is delta^T delta and Eq. 5 node by node, symmetric and positive semi-definite (SH-I1)."""
    edges = pairs()
    first, second = maps(kind, stalk, edges.shape[1])
    whole = sheaf.matrix(sheaf.laplacian(first, second, edges, NODES)).numpy()
    delta = coboundary(first, second, edges)
    x = normal(NODES * stalk, 4, seed=1).numpy()
    assert np.abs(whole - delta.T @ delta).max() < EXACT
    assert np.abs(whole @ x - by_definition(first, second, edges, x)).max() < EXACT
    assert np.abs(whole - whole.T).max() < EXACT
    assert np.linalg.eigvalsh(whole).min() > -EXACT
    assert np.einsum("ij,ij->", x, whole @ x) == pytest.approx(np.square(delta @ x).sum(), rel=1e-12)


@pytest.mark.parametrize("stalk", [1, 2, 3])
def test_identity_maps_give_the_graph_laplacian(stalk: int) -> None:
    """Identity maps give (D - A) (x) I_d, and with D + I one propagation of a GCN."""
    edges = pairs()
    eye = torch.eye(stalk, dtype=torch.float64).expand(edges.shape[1], stalk, stalk)
    blocks = sheaf.laplacian(eye, eye, edges, NODES)
    a = np.zeros((NODES, NODES))
    a[edges[0], edges[1]] = a[edges[1], edges[0]] = 1
    assert np.abs(sheaf.matrix(blocks).numpy() - np.kron(np.diag(a.sum(1)) - a, np.eye(stalk))).max() < EXACT
    delta = sheaf.matrix(sheaf.normalised(blocks, augmented=True, diagonal=True)).numpy()
    x = torch.eye(NODES, dtype=torch.float64)
    conv = GCNConv(NODES, NODES, bias=False).double()
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(NODES))
        step = conv(x, torch.cat([edges, edges.flip(0)], 1)).numpy()
    assert np.abs(np.eye(NODES * stalk) - delta - np.kron(step, np.eye(stalk))).max() < EXACT


@KINDS
@pytest.mark.parametrize("augmented", [True, False])
def test_normalisation_is_eq_6(kind: str, stalk: int, augmented: bool) -> None:
    """The normalised Laplacian is D^-1/2 L D^-1/2, with D or D + I, and has eigenvalues in [0, 2]."""
    edges = pairs()
    first, second = maps(kind, stalk, edges.shape[1])
    blocks = sheaf.laplacian(first, second, edges, NODES)
    whole, inverse = sheaf.matrix(blocks).numpy(), np.zeros((NODES * stalk, NODES * stalk))
    for v in range(NODES):
        part = slice(v * stalk, (v + 1) * stalk)
        value, vector = np.linalg.eigh(whole[part, part] + augmented * np.eye(stalk))
        inverse[part, part] = vector @ np.diag(np.where(value > 1e-12, value, np.inf) ** -0.5) @ vector.T
    normal_form = sheaf.matrix(sheaf.normalised(blocks, augmented, diagonal=kind != "general")).numpy()
    assert np.abs(normal_form - inverse @ whole @ inverse).max() < 1e-10
    values = np.linalg.eigvalsh(normal_form)
    assert values.min() > -1e-10 and values.max() < 2 + 1e-10
    if augmented:
        assert values.max() < 2


def test_a_node_without_edges_keeps_a_zero_row() -> None:
    """A node without edges receives nothing, and no entry is infinite."""
    edges = pairs(1)
    for kind in sheaf.MAPS:
        first, second = maps(kind, 2, edges.shape[1])
        blocks = sheaf.laplacian(first, second, edges, NODES)
        scaled = sheaf.normalised(blocks, augmented=False, diagonal=kind != "general")
        assert bool(scaled.isfinite().all())
        assert not bool(scaled[3].any()) and not bool(scaled[:, 3].any())


def test_orthogonal_maps_are_rotations() -> None:
    """F^T F = I, and one rotation per node gives a kernel of dimension d on a connected graph."""
    stalk, edges = 3, pairs()
    rotations = sheaf.as_maps(normal(NODES, sheaf.map_size("orthogonal", stalk)), "orthogonal", stalk)
    assert gap(rotations.mT @ rotations, torch.eye(stalk, dtype=torch.float64).expand(NODES, -1, -1)) < EXACT
    assert gap(torch.linalg.det(rotations), torch.ones(NODES, dtype=torch.float64)) < EXACT
    found = sheaf.matrix(sheaf.laplacian(rotations[edges[0]], rotations[edges[1]], edges, NODES))
    assert int((torch.linalg.eigvalsh(found) < 1e-10).sum()) == stalk


def test_gauge() -> None:
    """An orthogonal matrix at both ends of an edge leaves L unchanged, and at one end it does not."""
    edges = pairs()
    first, second = maps("general", 2, edges.shape[1])
    turn, _ = maps("orthogonal", 2, edges.shape[1], seed=5)
    before = sheaf.laplacian(first, second, edges, NODES)
    assert gap(before, sheaf.laplacian(turn @ first, turn @ second, edges, NODES)) < EXACT
    assert gap(before, sheaf.laplacian(turn @ first, second, edges, NODES)) > 0.1


def test_inverse_root_has_a_finite_gradient_where_eigenvalues_are_equal() -> None:
    """The derivative equals finite differences, also where that of an eigendecomposition is NaN."""
    spread = normal(3, 4, 4)
    different = spread @ spread.mT + torch.eye(4)
    equal = 2.0 * torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    for given in (different, equal):

        def root(free: Tensor) -> Tensor:
            return sheaf.inverse_root((free + free.mT) / 2)

        assert torch.autograd.gradcheck(root, given.clone().requires_grad_(), atol=1e-7)
        assert gap(root(given) @ root(given) @ given, torch.eye(4, dtype=torch.float64).expand_as(given)) < 1e-10
    leaf = equal.clone().requires_grad_()
    value, vector = torch.linalg.eigh(leaf)
    plain = (vector * value.rsqrt()[..., None, :]) @ vector.mT
    assert not bool(torch.autograd.grad(plain[:, 0, 1].sum(), leaf)[0].isfinite().all())


def test_diagonal_and_general_maps_agree_for_one_dimension() -> None:
    """For d = 1 both kinds of maps give the same normalised Laplacian."""
    edges = pairs()
    first, second = maps("diagonal", 1, edges.shape[1])
    blocks = sheaf.laplacian(first, second, edges, NODES)
    ways = [sheaf.normalised(blocks, True, diagonal) for diagonal in (True, False)]
    assert gap(*ways) < EXACT


# -- the collaboration graph and diffusion ----------------------------------------------------------------------------


def test_nearest_neighbours() -> None:
    """Two clients are joined once if one is among the other's K most similar; K = N - 1 joins all."""
    x = normal(NODES, 5)
    unit = x.numpy() / np.linalg.norm(x.numpy(), axis=1, keepdims=True)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    expected = {tuple(sorted((i, int(j)))) for i in range(NODES) for j in np.argsort(-similar[i])[:2]}
    assert [tuple(p) for p in nearest(x, 2).T.tolist()] == sorted(expected)
    assert torch.equal(nearest(x, NODES + 3), complete(NODES))
    assert nearest(x[:1], 3).shape == (2, 0)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_other_layers_equal_pyg(kind: str, residual: bool) -> None:
    """GCN and GAT layers equal PyG's with ELU (Table 5), with and without a residual connection."""
    diffusion = Diffusion(kind=kind, steps=2, channels=4, dropout=0.0, residual=residual)
    weights = {name: w.double() for name, w in diffusion.init(3, width=5).items()}
    x, edges = normal(NODES, 5), pairs()
    both = torch.cat([edges, edges.flip(0)], 1)
    h = torch.nn.functional.elu(x @ weights["sheaf.encode.weight"] + weights["sheaf.encode.bias"])
    for t in range(2):
        layer = (GCNConv(4, 4, bias=False) if kind == "gcn" else GATConv(4, 4, bias=False)).double()
        with torch.no_grad():
            layer.lin.weight.copy_(weights[f"sheaf.{t}.weight"].T)
            if kind == "gat":
                layer.att_src.copy_(weights[f"sheaf.{t}.source"].view(1, 1, -1))
                layer.att_dst.copy_(weights[f"sheaf.{t}.target"].view(1, 1, -1))
            h = torch.nn.functional.elu(layer(h, both)) + (h if residual else 0)
    expected = h @ weights["sheaf.decode.weight"] + weights["sheaf.decode.bias"]
    assert gap(diffusion(weights, x, edges, keep_all), expected) < EXACT


def plain_diffusion(part: Diffusion, weights: dict[str, Tensor], h: np.ndarray, edges: Tensor) -> np.ndarray:
    """Run Eq. 5 to 8 with maps edge by edge, the coboundary and the Kronecker product."""
    d, w = part.stalk, {name: v.numpy() for name, v in weights.items()}
    x = h.reshape(NODES * d, part.channels)
    delta = np.zeros(0)
    for t in range(part.steps):
        if t == 0 or part.maps_made == "layer":
            flat, values = x.reshape(NODES, -1), []
            for u, v in [*edges.T.tolist(), *edges.flip(0).T.tolist()]:
                z = np.concatenate([flat[u], flat[v]])
                if part.learner == "mlp":
                    z = np.maximum(z @ w[f"sheaf.{t}.map0.weight"] + w[f"sheaf.{t}.map0.bias"], 0)
                last = "map1" if part.learner == "mlp" else "map0"
                values.append(np.tanh(z @ w[f"sheaf.{t}.{last}.weight"]))
            both = sheaf.as_maps(torch.from_numpy(np.array(values)), part.maps, d)
            delta = coboundary(*both.chunk(2), edges)
            whole = delta.T @ delta
            block = np.kron(np.eye(NODES), np.ones((d, d))) * whole + part.augmented * np.eye(NODES * d)
            value, vector = np.linalg.eigh(block)
            root = vector @ np.diag(value**-0.5) @ vector.T
            delta = root @ whole @ root
        inner = delta @ np.kron(np.eye(NODES), w[f"sheaf.{t}.w1"]) @ x @ w[f"sheaf.{t}.w2"]
        kept_share = 1 + np.tanh(np.tile(w[f"sheaf.{t}.eps"], (NODES, 1))) if part.gate else 1.0
        x = kept_share * x - np.where(inner > 0, inner, np.expm1(np.minimum(inner, 0)))
    return x.reshape(NODES, -1)


@KINDS
@pytest.mark.parametrize(("learner", "maps_made", "gate"), [("mlp", "layer", False), ("linear", "once", True)])
def test_diffusion_is_eq_7_and_8(kind: str, stalk: int, learner: str, maps_made: str, gate: bool) -> None:
    """Three layers equal the equations written out in NumPy for every kind of maps (SH-I2)."""
    sizes = {"steps": 3, "channels": 4, "stalk": stalk, "maps": kind}
    part = Diffusion(**sizes, learner=learner, maps_made=maps_made, gate=gate, dropout=0.0)
    weights = {name: w.double() for name, w in part.init(1, width=6).items()}
    for t in range(3):
        weights[f"sheaf.{t}.w1"] = weights[f"sheaf.{t}.w1"] + 0.3 * normal(stalk, stalk, seed=t)
        if gate:
            weights[f"sheaf.{t}.eps"] = normal(stalk, 1, seed=t)
    h, edges = normal(NODES, part.state), pairs()
    states = part.states(weights, h, edges)[-1].numpy()
    assert np.abs(states - plain_diffusion(part, weights, h.numpy(), edges)).max() < 1e-10
    assert np.abs(states - h.numpy()).max() > 1e-3


@pytest.mark.parametrize("kind", sheaf.MAPS)
def test_the_map_learner_is_alive(kind: str) -> None:
    """The learner has a gradient, W2 starts orthogonal, and maps frozen at the identity change the output."""
    part = Diffusion(steps=2, channels=4, stalk=2, maps=kind, dropout=0.0)
    weights = {name: w.double().requires_grad_() for name, w in part.init(1, width=6).items()}
    x, edges = normal(NODES, 6), pairs()
    out = part(weights, x, edges, keep_all)
    for name, grad in zip(weights, torch.autograd.grad(out.square().sum(), list(weights.values()))):
        assert float(grad.norm()) > 1e-6, name
    w2 = weights["sheaf.0.w2"].detach()
    assert gap(w2.T @ w2, torch.eye(4, dtype=torch.float64)) < EXACT
    silent = {name: torch.zeros_like(w) if ".map" in name else w for name, w in weights.items()}
    assert gap(out, part(silent, x, edges, keep_all)) > 1e-3


def test_no_edges_leave_the_states() -> None:
    """With a single client every layer keeps its state."""
    part = Diffusion(steps=2, channels=4, stalk=2, maps="general", dropout=0.0)
    weights = {name: w.double() for name, w in part.init(1, width=6).items()}
    h = normal(1, part.state)
    assert torch.equal(part.states(weights, h, complete(1))[-1], h)


def test_adjacency_is_that_of_a_gcn() -> None:
    """The adjacency is symmetric with largest eigenvalue 1."""
    a = normalised_adjacency(pairs(), NODES, torch.float64)
    assert torch.equal(a, a.T)
    assert float(torch.linalg.eigvalsh(a).max()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "sgc"}, "diffusion"),
        ({"maps": "skew"}, "maps"),
        ({"learner": "deep"}, "learner"),
        ({"maps_made": "twice"}, "maps_made"),
        ({"stalk": 0}, "stalk"),
        ({"steps": 0}, "steps"),
        ({"dropout": 1.0}, "sheaf_dropout"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, object], words: str) -> None:
    """An impossible option is named."""
    with pytest.raises(ArgumentError, match=words):
        Diffusion(**options)
    with pytest.raises(ArgumentError, match="columns"):
        sheaf.as_maps(normal(3, 5), "diagonal", 2)
