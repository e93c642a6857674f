"""FedStruct's propositions as numbers: gradients against automatic differentiation, each with a control that must fail.

FS-L1, FS-Th1 to Th4   `gradients`      FS-I1   `polynomial_filter`      FS-I5   `counting`
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import random
from fedrepro.papers.fedstruct import powers as fedstruct_powers
from fedrepro.runs.run import Run

NODES, FEATURES, CLASSES, CLIENTS = 60, 6, 3, 4
BETA = (0.1, 0.3, -0.2, 0.8)


def small_graph(seed: int) -> Data:
    """A seeded graph of 60 nodes whose edges prefer a class, half of them labelled for training, float64."""
    y = torch.from_numpy(np.floor(random.uniform((NODES,), "small", seed, "y").numpy() * CLASSES).astype(np.int64))
    draw = random.uniform((NODES, NODES), "small", seed, "edges")
    upper = torch.triu(draw < torch.where(y[:, None] == y[None], 0.12, 0.03), 1)
    role = random.uniform((NODES,), "small", seed, "role")
    return Data(
        x=random.normal((NODES, FEATURES), "small", seed, "x"), y=y, num_classes=CLASSES,
        edge_index=(upper | upper.T).nonzero().T.contiguous(), train_mask=role < 0.5,
        val_mask=(role >= 0.5) & (role < 0.7), test_mask=role >= 0.7,
    )  # fmt: skip


def small_federation(seed: int, clients: int = CLIENTS) -> Federation:
    """That graph at `clients` clients, nodes dealt in turn."""
    parts = [torch.arange(client, NODES, clients) for client in range(clients)]
    return Federation.of(small_graph(seed), parts, seed, dtype=torch.float64)


# -- Lemma 1 and Propositions 1 to 4 ----------------------------------------------------------------------------------


class Setting:
    """A small instance: A-, S, weights of one layer each for f and g, and Theta_c, all float64."""

    def __init__(self, seed: int) -> None:
        self.fed = small_federation(seed)
        source = self.fed.sources[0]
        self.data, self.parts = source.data, source.parts
        self.abar = torch.from_numpy(fedstruct_powers.combined(self.data, self.parts, BETA, 0)[0].toarray())
        local = [torch.from_numpy(self._local(part)) for part in self.parts]
        self.hidden = torch.zeros(NODES, FEATURES, dtype=torch.float64)  # Ahat X of each client's own graph
        for part, a in zip(self.parts, local):
            self.hidden[part] = a @ self.data.x[part]
        draw = {"s": (NODES, 5), "direct": (NODES, CLASSES), "theta_f": (FEATURES, CLASSES), "theta_s": (5, CLASSES),
                "theta_c_s": (CLASSES, CLASSES), "theta_c_f": (CLASSES, CLASSES)}  # fmt: skip
        self.w = {name: random.normal(shape, "setting", seed, name) for name, shape in draw.items()}
        self.y = F.one_hot(self.data.y, CLASSES).double()

    def _local(self, part: Tensor) -> np.ndarray:
        inside = fedstruct_powers.with_loops(self.data)[part.numpy()][:, part.numpy()].toarray()
        return np.asarray(inside / inside.sum(1, keepdims=True))

    def labelled(self, client: int) -> Tensor:
        """V~_i."""
        return self.parts[client][self.data.train_mask[self.parts[client]]]

    def loss(self, w: dict[str, Tensor], client: int, head: str, abar: Tensor | None = None) -> Tensor:
        """L_i (Eq. 4), a sum over V~_i, of Eq. 10 ("mlp"), Eq. 15 ("direct") or Eq. 51 ("layer")."""
        v, abar = self.labelled(client), self.abar if abar is None else abar
        z = abar[v] @ (w["direct"] if head == "direct" else torch.tanh(w["s"] @ w["theta_s"]))
        h = torch.tanh(self.hidden[v] @ w["theta_f"])
        q = z @ w["theta_c_s"] + h @ w["theta_c_f"] if head == "layer" else z + h
        return F.cross_entropy(q, self.data.y[v], reduction="sum")

    def automatic(self, names: tuple[str, ...], client: int, head: str, abar: Tensor | None = None) -> list[Tensor]:
        """Gradients of `loss` by automatic differentiation."""
        leaves = {name: w.clone().requires_grad_() for name, w in self.w.items()}
        return list(torch.autograd.grad(self.loss(leaves, client, head, abar), [leaves[name] for name in names]))

    def residual(self, v: Tensor, head: str) -> Tensor:
        """y^_v - y_v."""
        w = self.w
        z = self.abar[v] @ (w["direct"] if head == "direct" else torch.tanh(w["s"] @ w["theta_s"]))
        h = torch.tanh(self.hidden[v] @ w["theta_f"])
        q = z @ w["theta_c_s"] + h @ w["theta_c_f"] if head == "layer" else z + h
        return q.softmax(1) - self.y[v]

    def jacobians(self) -> tuple[Tensor, Tensor]:
        """dg(s_u) / dtheta_s `[nodes, classes, 5, classes]` and df(v) / dtheta_f `[nodes, classes, features,
        classes]`.
        """
        w, eye = self.w, torch.eye(CLASSES, dtype=torch.float64)
        of_g = 1 - torch.tanh(w["s"] @ w["theta_s"]) ** 2
        of_f = 1 - torch.tanh(self.hidden @ w["theta_f"]) ** 2
        return (torch.einsum("uc,up,cd->ucpd", of_g, w["s"], eye),
                torch.einsum("vc,vp,cd->vcpd", of_f, self.hidden, eye))  # fmt: skip


def _off(made: Tensor, right: Tensor) -> float:
    return float((made - right).abs().max())


def gradients(run: Run) -> dict[str, Any]:
    """FS-L1, FS-Th1 to Th4 on a small seeded graph: largest absolute differences over all clients.

    Returns:
        `lemma1` and its control, the gradient with softmax applied twice; `prop1_outside` and `prop1_inside`: change of
        a client's gradients when all other clients' rows of A- change, or its own; `prop2` with A-^T for A- as control
        (A- is not symmetric); `prop3` with the client's own nodes alone in the sum as control; `prop4` with Theta_c
        left out as control, and `prop4_printed`, where sums run over all labelled nodes V~ instead of the client's.
    """
    at = Setting(run.seed)
    found = dict.fromkeys(
        ("lemma1", "lemma1_control", "prop1_outside", "prop1_inside", "prop2", "prop2_control", "prop3",
         "prop3_control", "prop4", "prop4_control", "prop4_printed"), 0.0,
    )  # fmt: skip

    def worst(name: str, made: Tensor, right: Tensor) -> None:
        found[name] = max(found[name], _off(made, right))

    q = random.normal((20, CLASSES), "lemma", run.seed).requires_grad_()
    y = at.data.y[:20]
    (automatic,) = torch.autograd.grad(F.cross_entropy(q, y, reduction="sum"), q)
    (twice,) = torch.autograd.grad(F.cross_entropy(q.softmax(1), y, reduction="sum"), q)
    lemma = (q.softmax(1) - at.y[:20]).detach()
    worst("lemma1", lemma, automatic)
    worst("lemma1_control", lemma, twice)
    of_g, of_f = at.jacobians()
    every = torch.cat([at.labelled(client) for client in range(CLIENTS)])
    for client, part in enumerate(at.parts):
        v = at.labelled(client)
        names = ("theta_f", "theta_s")
        own = at.automatic(names, client, "mlp")
        moved = {"prop1_inside": at.abar.clone(), "prop1_outside": 1.7 * at.abar}
        moved["prop1_inside"][part] *= 1.7
        moved["prop1_outside"][part] = at.abar[part]
        for name, abar in moved.items():
            worst(name, torch.cat([g.flatten() for g in at.automatic(names, client, "mlp", abar)]),
                  torch.cat([g.flatten() for g in own]))  # fmt: skip

        residual = at.residual(v, "direct")
        (by_s,) = at.automatic(("direct",), client, "direct")
        worst("prop2", at.abar[v].T @ residual, by_s)  # Eq. 16
        worst("prop2_control", at.abar[:, v] @ residual, by_s)

        residual = at.residual(v, "mlp")
        weights = torch.einsum("vu,vc->uc", at.abar[v], residual)
        worst("prop3", torch.einsum("ucpd,uc->pd", of_g, weights), own[1])  # Eq. 22
        worst("prop3", torch.einsum("vcpd,vc->pd", of_f[v], residual), own[0])
        inside = torch.einsum("ucpd,uc->pd", of_g[part], weights[part])
        worst("prop3_control", inside, own[1])

        for name, nodes, with_layer in (("prop4", v, 1), ("prop4_control", v, 0), ("prop4_printed", every, 1)):
            made = _proposition4(at, nodes, of_g, of_f, bool(with_layer))
            for a, b in zip(made, at.automatic(("theta_s", "theta_f", "theta_c_s", "theta_c_f"), client, "layer")):
                worst(name, a, b)
    return {"result": found}


def _proposition4(at: Setting, v: Tensor, of_g: Tensor, of_f: Tensor, with_layer: bool) -> list[Tensor]:
    """Proposition 4 and H.1 summed over nodes v: gradients by theta_s, theta_f, Theta_c^(s), Theta_c^(f)."""
    residual, w = at.residual(v, "layer"), at.w
    through = [residual @ w[name].T if with_layer else residual for name in ("theta_c_s", "theta_c_f")]
    z = at.abar[v] @ torch.tanh(w["s"] @ w["theta_s"])
    h = torch.tanh(at.hidden[v] @ w["theta_f"])
    weights = torch.einsum("vu,vc->uc", at.abar[v], through[0])
    by_s, by_f = torch.einsum("ucpd,uc->pd", of_g, weights), torch.einsum("vcpd,vc->pd", of_f[v], through[1])
    return [by_s, by_f, z.T @ residual, h.T @ residual]


# -- Eq. 11 and 12 ----------------------------------------------------------------------------------------------------


def polynomial_filter(run: Run) -> dict[str, Any]:
    """FS-I1, FS-Q8: Z = sum_l beta_l A^^l G as a filter of G's spectrum, largest absolute differences.

    Returns:
        `inverse`: with U^-1, which is right; `transpose`: with U^T as printed in Eq. 11, which is not, for A^ is not
        symmetric; `symmetric`: U^T for D~^-1/2 (A+I) D~^-1/2, for which Eq. 11 does hold; `orthogonality`: the largest
        entry of U^T U - I.
    """
    data = small_graph(run.seed)
    a = fedstruct_powers.with_loops(data).toarray()
    degree = a.sum(1)
    g = random.normal((NODES, CLASSES), "filter", run.seed).numpy()
    step, even = a / degree[:, None], a / np.sqrt(np.outer(degree, degree))

    def response(x: np.ndarray) -> np.ndarray:
        return np.asarray(sum(b * x**power for power, b in enumerate(BETA)))

    def polynomial(m: np.ndarray) -> np.ndarray:
        return np.asarray(sum(b * np.linalg.matrix_power(m, power) @ g for power, b in enumerate(BETA)))

    # D~^-1/2 V are eigenvectors of A^, V those of the symmetric matrix; scaled to length 1 as Eq. 11 has them
    values, v = np.linalg.eigh(even)
    u = v / np.sqrt(degree)[:, None]
    u = u / np.linalg.norm(u, axis=0)
    return {
        "result": {
            "inverse": float(np.abs(u @ (response(values)[:, None] * np.linalg.solve(u, g)) - polynomial(step)).max()),
            "transpose": float(np.abs(u @ (response(values)[:, None] * (u.T @ g)) - polynomial(step)).max()),
            "symmetric": float(np.abs(v @ (response(values)[:, None] * (v.T @ g)) - polynomial(even)).max()),
            "orthogonality": float(np.abs(u.T @ u - np.eye(NODES)).max()),
        }
    }


# -- G.1: counting ----------------------------------------------------------------------------------------------------


def counting(run: Run) -> dict[str, Any]:
    """FS-I5, FS-Q17: can client 1 solve for client 2's structure features from the sums it receives?

    Options: observers |V~_1| (8), unknowns m (12 nodes of client 2 with weight in them), head ("direct": s_u has c
    entries, Eq. 49; "mlp": d_s = 5 entries behind a linear g, Eq. 47), queries (1: rounds with other weights of g).

    Returns:
        `equations` c |V~_1| per query and `unknowns` m c or m d_s; `prevented` by the text's condition (m > |V~_1|, or
        m d_s > c |V~_1|); `rank` of the system and `nullity`; `error`: of the least-squares reconstruction, relative
        (0: all is known); `recovered`: share of nodes known exactly all the same.
    """
    options = run.options
    observers, nodes = int(options.get("observers", 8)), int(options.get("unknowns", 12))
    head, queries = str(options.get("head", "direct")), int(options.get("queries", 1))
    width = CLASSES if head == "direct" else 5
    weight = random.uniform((observers, nodes), "counting", run.seed, "A").numpy()
    s = random.normal((nodes, width), "counting", run.seed, "s").numpy()
    blocks = []
    for query in range(queries):
        g = random.normal((width, CLASSES), "counting", run.seed, "g", query).numpy()
        g = np.eye(CLASSES) if head == "direct" else g
        blocks.append(np.kron(weight, g.T))  # entry (v, c) of the sums is a row, entry (u, k) of S a column
    system = np.concatenate(blocks)
    guess = np.linalg.lstsq(system, system @ s.ravel(), rcond=None)[0].reshape(s.shape)
    rank = int(np.linalg.matrix_rank(system))
    known = np.linalg.norm(guess - s, axis=1) < 1e-6 * np.linalg.norm(s, axis=1)
    return {
        "result": {
            "equations": CLASSES * observers, "unknowns": nodes * width,
            "prevented": nodes * width > CLASSES * observers, "rank": rank, "nullity": nodes * width - rank,
            "error": float(np.linalg.norm(guess - s) / np.linalg.norm(s)), "recovered": float(known.mean()),
        }
    }  # fmt: skip
