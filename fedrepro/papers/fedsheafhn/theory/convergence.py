"""Theorem 1 and Lemmas 1 to 4 of FedSheafHN (Appendix B) on a smooth problem whose constants are known.

    L(eta, h) = 1/N sum_i [ f_i(M_i(eta)) + g_i(h_i) ]        M_i(eta) = A_i sin(k eta) / k
    f_i(w) = mu sum_j (sqrt(1 + (w_j - c_ij)^2) - 1)          g_i is alike, with factor nu and minimum d_i

M_i(eta) `[q]` are the weights that the server generates for client i from its parameters eta `[p]`, and h_i `[d]` is
the client's head. In a round client i takes T_c steps of size beta along noisy gradients of f_i from M_i(eta), and T_c
steps along the gradients of g_i from h_i. The server then subtracts beta/N times the sum of the noisy gradients times
the Jacobian of M_i. With ||A_i|| = a the constants of the theorem are

    b1 = nu sqrt(d), b2 = mu sqrt(q), b3 = L1 = a, L4 = nu, L5 = k a, L7 = mu, L* >= 0, L_G^2 <= (b2 b3)^2 + b1^2
    L = max(b2 L5 + b3 L1 L7, L4) (Lemma 1)

The checks show where the printed statements fail:

    Theorem 1  Its term (L+2) b1^2 / T_c does not vanish with T, whereas the quantity it bounds does (SH-Q10).
    Lemma 2    Its printed left side is grad L_i - grad f_i - beta sum g J^T, in which a gradient by eta and one by the
               weights of a backbone are subtracted. These are vectors of two spaces. We close the bracket around
               grad f_i - beta sum g, which leaves beta sum g J^T: the client's moves, and not the gradient after
               them. The right side does not bound it where L7 is small. The quantity that the proof uses is bounded.
    Lemma 3    It needs heads that move. It fails with fixed heads.
    Lemma 4    It lost the factor b3^2 of the noise, which reaches eta through the Jacobian, and so did Theorem 1. Both
               fail if b3 is large. Both hold with b3^2 sigma^2 for sigma^2 (in Theorem 1 with L1 left out there).

The proof of Theorem 1 also needs conditions on T that the text does not state:

    T >= 256 N (L L1)^2                      Its last step takes beta <= 1 / (8 L L1 T_c).
    T >= 4 N T_c^2                           It bounds the heads' squared move (beta T_c b1)^2 by beta b1^2.
    T >= 4 N^3 T_c^2 (L7 b3)^4 / (L L1)^2    It drops the drift of the noise. With the first, this one is enough.

B.1 prints b1 and b2 both for gradients by the head. We take b2 for the gradient by the backbone, as the proofs do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedrepro.engine.nn import random
from fedrepro.reporting.checks import Row, control, row, worst_of
from fedrepro.runs.run import Run

REPEATS = 256  # draws of the noise that an expectation is averaged over
ROUNDS = (16, 64, 256, 1024, 4096)


@dataclass(frozen=True)
class Problem:
    """The problem of the module's text, with its sizes and constants.

    Args:
        seed: of A_i, the minima and the noise.
        clients: N.
        size: p, q and d.
        a, k, mu, nu: see the module's text.
        sigma: the noise of a gradient has mean squared norm sigma^2.
        local: T_c, steps of a client in a round.
        apart: standard deviation of the clients' minima; 0 makes all clients alike.
        heads: clients train their heads.
    """

    seed: int = 0
    clients: int = 4
    size: int = 3
    a: float = 1.0
    k: float = 0.5
    mu: float = 1.0
    nu: float = 0.5
    sigma: float = 0.5
    local: int = 5
    apart: float = 1.0
    heads: bool = True

    @cached_property
    def jacobians(self) -> Tensor:
        """Return A_i `[clients, q, p]`, a times an orthogonal matrix, the same for all if clients are alike."""
        drawn = random.normal((self.clients, self.size, self.size), "A", self.seed)
        q: Tensor = torch.linalg.qr(drawn if self.apart else drawn[:1].expand_as(drawn))[0]
        return self.a * q

    @cached_property
    def centres(self) -> tuple[Tensor, Tensor]:
        """Return the minima c_i and d_i, `[clients, size]` each."""
        drawn = self.apart * random.normal((2, self.clients, self.size), "centres", self.seed)
        return drawn[0], drawn[1]

    @property
    def constants(self) -> dict[str, float]:
        """Return b1, b2, b3, L1, L4, L5, L7, L and L_G^2."""
        root = math.sqrt(self.size)
        c = {"b1": self.nu * root, "b2": self.mu * root, "b3": self.a}
        c |= {"L1": self.a, "L4": self.nu, "L5": self.k * self.a, "L7": self.mu}
        c["L"] = max(c["b2"] * self.k * self.a + c["b3"] * self.a * self.mu, self.nu)
        c["L_G^2"] = (c["b2"] * c["b3"]) ** 2 + c["b1"] ** 2 if self.apart else 0.0
        return c

    def generate(self, eta: Tensor) -> Tensor:
        """Return M_i(eta), `[..., clients, q]` from `[..., p]`."""
        inner = torch.sin(self.k * eta) / self.k if self.k else eta
        return torch.einsum("iqp,...p->...iq", self.jacobians, inner)

    def back(self, eta: Tensor, gradient: Tensor) -> Tensor:
        """Return the Jacobian of M_i, transposed, times a gradient, `[..., clients, p]` from `[..., clients, q]`."""
        inner = torch.cos(self.k * eta)[..., None, :]
        return torch.einsum("iqp,...iq->...ip", self.jacobians, gradient) * inner

    def slope(self, w: Tensor) -> Tensor:
        """Return the gradient of f_i, of the shape of `w`."""
        x = w - self.centres[0]
        return self.mu * x / (1 + x * x).sqrt()

    def head_slope(self, h: Tensor) -> Tensor:
        """Return the gradient of g_i, of the shape of `h`."""
        x = h - self.centres[1]
        return self.nu * x / (1 + x * x).sqrt()

    def loss(self, eta: Tensor, h: Tensor) -> Tensor:
        """Return L `[...]` at `eta` `[..., p]` and `h` `[..., clients, d]`."""
        both = ((self.generate(eta) - self.centres[0], self.mu), (h - self.centres[1], self.nu))
        return sum((c * ((1 + x * x).sqrt() - 1).sum(-1).mean(-1) for x, c in both), torch.zeros(()))

    def gradients(self, eta: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of client i's loss by eta `[..., clients, p]` and by its head `[..., clients, d]`."""
        return self.back(eta, self.slope(self.generate(eta))), self.head_slope(h)

    def squared_norm(self, eta: Tensor, h: Tensor) -> Tensor:
        """Return ||grad L||^2 `[...]`, in which a head's gradient is 1/N of its client's."""
        by_eta, by_head = self.gradients(eta, h)
        return by_eta.mean(-2).square().sum(-1) + (by_head / self.clients).square().sum((-1, -2))

    def noise(self, repeats: int, *key: int | str) -> Tensor:
        """Return the noise of one round `[T_c, repeats, clients, q]`, of mean 0 and mean squared norm sigma^2."""
        shape = (self.local, repeats, self.clients, self.size)
        return self.sigma / math.sqrt(self.size) * random.normal(shape, "noise", self.seed, *key)


def train_round(
    problem: Problem, eta: Tensor, h: Tensor, beta: float, noise: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Train one round.

    Args:
        problem: the losses.
        eta: the server's parameters `[repeats, p]`.
        h: the heads `[repeats, clients, d]`.
        beta: the size of a step.
        noise: see `Problem.noise`.

    Returns:
        `eta` and `h` after the round, and sum_{j<l} g_{t,i,j}, the sum of the noisy gradients before each step l.
    """
    w = problem.generate(eta)
    total, sums = torch.zeros_like(w), []
    for drawn in noise:
        sums.append(total)
        total = total + problem.slope(w - beta * total) + drawn
        if problem.heads:
            h = h - beta * problem.head_slope(h)
    return eta - beta * problem.back(eta, total).mean(-2), h, sums


# -- lemmas -----------------------------------------------------------------------------------------------------------


def lemma1(problem: Problem) -> tuple[float, float]:
    """Return the largest ratio of gradient to parameter distance of one client's loss, and its bound L."""
    shape, head_shape, seed = (4000, problem.size), (4000, 1, problem.size), problem.seed
    eta, h = 3 * random.normal(shape, "eta", seed), 3 * random.normal(head_shape, "h", seed)
    near = 0.1 * random.uniform((4000, 1), "near", seed) + 1e-3
    eta2 = eta + near * random.normal(shape, "eta2", seed)
    h2 = h + near[:, None] * random.normal(head_shape, "h2", seed)
    h, h2 = (x.expand(-1, problem.clients, -1) for x in (h, h2))
    one, two = problem.gradients(eta, h), problem.gradients(eta2, h2)
    moved = sum((a - b).square().sum(-1) for a, b in zip(one, two, strict=True))
    apart = (eta - eta2).square().sum(-1)[:, None] + (h - h2).square().sum(-1)
    return float((moved / apart).max().sqrt()), problem.constants["L"]


def lemma2(problem: Problem, beta: float, printed: bool) -> tuple[float, float]:
    """Return the largest ratio of left to right side over steps, clients and eight states, and its bound 1.

    Args:
        problem: the losses.
        beta: the size of a step.
        printed: use the printed left side with its bracket closed, which is beta sum g J^T, the client's moves. Without
            the bracket it subtracts a gradient by the backbone from one by eta. The left side of the proof is
            (grad f_i(w) - grad f_i(w - beta sum g)) J^T.
    """
    c, worst = problem.constants, 0.0
    for state in range(8):
        eta = 2 * random.normal((problem.size,), "state", problem.seed, state).expand(REPEATS, -1)
        w, h = problem.generate(eta), torch.zeros(REPEATS, problem.clients, problem.size, dtype=torch.float64)
        _, _, sums = train_round(problem, eta, h, beta, problem.noise(REPEATS, "lemma2", state))
        for step, total in enumerate(sums[1:], start=1):
            used = problem.back(eta, problem.slope(w) - problem.slope(w - beta * total))
            moves = beta * problem.back(eta, total)
            left = (moves if printed else used).square().sum(-1).mean(0).max()
            right = 3 * (c["L7"] * c["b3"] * beta * step) ** 2 * (c["b2"] ** 2 + problem.sigma**2)
            worst = worst_of((worst, float(left) / right))
    return worst, 1.0


def lemmas34(problem: Problem, beta: float, far: float = 2.0) -> dict[str, float]:
    """Measure both sides of Lemmas 3 and 4 over eight states.

    Args:
        problem: the losses.
        beta: the size of a step.
        far: standard deviation of the states' distance from the minima; 0 puts heads and weights on these.

    Returns:
        `lemma3` and `lemma3_short`, the largest left minus right side, as printed and without the term of the drift;
        `lemma4` and `corrected4`, the largest ratio of left to right side as printed and with b3^2 at the noise.
    """
    c, n, steps = problem.constants, problem.clients, problem.local
    worst = {"lemma3": -math.inf, "lemma3_short": -math.inf, "lemma4": 0.0, "corrected4": 0.0}
    for state in range(8):
        eta0 = far * random.normal((problem.size,), "state", problem.seed, state)
        h0 = problem.centres[1] + far * random.normal((n, problem.size), "head", problem.seed, state)
        eta, h = eta0.expand(REPEATS, -1), h0.expand(REPEATS, -1, -1)
        after, head, _ = train_round(problem, eta, h, beta, problem.noise(REPEATS, "lemmas34", state))
        by_eta, by_head = problem.gradients(eta, h)
        inner = (by_eta.mean(-2) * (after - eta)).sum(-1) + (by_head * (head - h)).sum((-1, -2)) / n
        norm, power = float(problem.squared_norm(eta0, h0)), c["b2"] ** 2 + problem.sigma**2
        drift = (c["L7"] * c["b3"]) ** 2 * power
        moved = drift * beta**3 * steps**3
        right3 = -0.75 * beta * steps * norm + moved + beta * c["b1"] ** 2
        rest = 12 * beta**4 * drift * steps**4 + 4 * (beta * steps) ** 2 * (c["L_G^2"] / n + norm)
        noise = 4 * beta**2 * steps / n * problem.sigma**2
        left4 = float((after - eta).square().sum(-1).mean())
        values = {
            "lemma3": float(inner.mean()) - right3,
            "lemma3_short": float(inner.mean()) - (right3 - moved),
            "lemma4": left4 / (noise + rest),
            "corrected4": left4 / (c["b3"] ** 2 * noise + rest),
        }
        worst = {name: worst_of((worst[name], value)) for name, value in values.items()}
    return worst


# -- Theorem 1 --------------------------------------------------------------------------------------------------------


def bound(problem: Problem, rounds: int, start: float, corrected: bool = False) -> float:
    """Return the right side of Eq. 16.

    Args:
        problem: the losses.
        rounds: T.
        start: L(omega_0). It equals L(omega_0) - L* if clients are alike, and is no smaller otherwise.
        corrected: use L b3^2 sigma^2 instead of L L1 sigma^2.
    """
    c, n, steps = problem.constants, problem.clients, problem.local
    noise = c["L"] * (c["b3"] ** 2 if corrected else c["L1"]) * 16 * problem.sigma**2
    unlike = c["L"] * c["L1"] * 8 * steps * c["L_G^2"]
    root = math.sqrt(n * rounds)
    drift = 16 * n * (c["L7"] * c["b3"] * c["b2"]) ** 2 / rounds
    return start / root + (noise + unlike) / (steps * root) + drift + floor(problem)


def floor(problem: Problem) -> float:
    """Return (L + 2) b1^2 / T_c, the term of Eq. 16 that does not depend on T."""
    c = problem.constants
    return (c["L"] + 2) * c["b1"] ** 2 / problem.local


def mean_squared_gradient(problem: Problem, rounds: int, far: float, repeats: int = 8) -> tuple[float, float]:
    """Return 1/T sum_t E ||grad L(omega_t)||^2 for beta = 2 sqrt(N) / (T_c sqrt(T)), and L(omega_0).

    Args:
        problem: the losses.
        rounds: T.
        far: standard deviation of the start's distance from the minima.
        repeats: draws of the noise behind the expectation.
    """
    beta = 2 * math.sqrt(problem.clients / rounds) / problem.local
    eta = far * random.normal((problem.size,), "start", problem.seed).expand(repeats, -1)
    h = problem.centres[1] + far * random.normal((problem.clients, problem.size), "start head", problem.seed)
    h = h.expand(repeats, -1, -1)
    start, total = float(problem.loss(eta, h).mean()), 0.0
    for t in range(rounds):
        eta, h, _ = train_round(problem, eta, h, beta, problem.noise(repeats, "theorem", rounds, t))
        total += float(problem.squared_norm(eta, h).mean())
    return total / rounds, start


def convergence(run: Run) -> dict[str, Any]:
    """Check Theorem 1 and Lemmas 1 to 4.

    Args:
        run: its option is "rounds", the largest T (4096).

    Returns:
        "result": `checks`, rows of `fedrepro.reporting.checks`; `curve`, lists over `T` of what was `measured`, its
        `bound` and the bound's `floor`; and `constants`.
    """
    plain = Problem(run.seed)
    times = [t for t in ROUNDS if t <= int(run.options.get("rounds", ROUNDS[-1]))]
    measured, starts = zip(*(mean_squared_gradient(plain, t, 2.0) for t in times), strict=True)
    bounds = [bound(plain, t, start) for t, start in zip(times, starts, strict=True)]
    worst = worst_of(m / b for m, b in zip(measured, bounds, strict=True))
    stays = "(L+2) b1^2 / T_c, which stays, against what is measured at the largest T"
    rows = [
        *_check_lemmas(plain),
        row("SH-Th1", "measured / bound of Eq. 16, largest over T", worst, 1.0),
        row("SH-Th1-floor", stays, floor(plain), measured[-1]),
        *_check_terms(plain, times[-1]),
    ]
    curve = {"T": times, "measured": list(measured), "bound": bounds, "floor": [floor(plain)] * len(times)}
    return {"result": {"checks": rows, "curve": curve, "constants": plain.constants}}


def _check_terms(plain: Problem, rounds: int) -> list[Row]:
    """Check the terms of the noise and of the start in Eq. 16, on problems where that term leads."""
    # Clients are flat and alike, have no heads and start at their minimum, and the hypernetwork is steep. The noise is
    # then the only cause of any movement.
    steep = replace(plain, a=100.0, k=0.0, mu=1e-4, nu=0.0, sigma=1e-3, apart=0.0)
    measured, start = mean_squared_gradient(steep, rounds, 0.0)
    silent = bound(replace(steep, sigma=0.0), rounds, start)
    # Without noise and heads, and with clients that are alike and nearly linear, the first term leads. It is then at
    # most twice too large.
    calm = replace(plain, mu=0.1, nu=0.0, sigma=0.0, apart=0.0)
    calm_measured, calm_start = mean_squared_gradient(calm, rounds, 2.0)
    corrected = bound(steep, rounds, start, corrected=True)
    return [
        row("SH-Th1-printed", "Eq. 16 where b3 = 100", measured, bound(steep, rounds, start)),
        row("SH-Th1-corrected", "Eq. 16 there with b3^2 at the noise", measured, corrected),
        control("SH-Th1-noise", "Eq. 16 there without the noise", measured, silent),
        row("SH-Th1-start", "Eq. 16 where the start leads", calm_measured, bound(calm, rounds, calm_start)),
        control("SH-Th1-start", "Eq. 16 there without the start", calm_measured, bound(calm, rounds, 0.0)),
    ]


def _check_lemmas(plain: Problem) -> list[Row]:
    """Check Lemmas 1 to 4, each also on a problem where its printed form fails or a control must fail."""
    beta = 0.05
    bent = replace(plain, k=4.0, mu=0.2)
    flat = replace(plain, mu=0.05, a=1.0, k=0.0)
    still = replace(plain, heads=False, local=40, mu=1e-3, clients=2, sigma=0.0)
    steep = replace(plain, a=10.0, k=0.0, mu=1e-4, nu=0.0, apart=0.0)
    # One client without head and noise takes long steps, so that its gradient turns within a round.
    turned = lemmas34(replace(plain, clients=1, nu=0.0, sigma=0.0, k=0.0, local=20), 0.2)
    c, both, noisy = bent.constants, lemmas34(plain, beta), lemmas34(steep, beta, far=0.0)
    ratio = "largest gradient ratio"
    closed = "left / right side as printed with its bracket closed, where L7 is small"
    short = "where M_i bends, bound L without b2 L5"
    short_bound = max(c["b3"] * c["L1"] * c["L7"], c["L4"])
    fixed = lemmas34(still, 1e-3)["lemma3"]
    leads = "left / right side where b3 = 10 and the noise leads"
    return [
        row("SH-L1", f"{ratio}, bound L", *lemma1(plain)),
        row("SH-L1-bent", f"{ratio} where M_i bends (L5 > b3 L1 L7), bound L", *lemma1(bent)),
        control("SH-L1", f"{ratio} {short}", lemma1(bent)[0], short_bound),
        row("SH-L2", "left / right side as used, largest", *lemma2(plain, beta, printed=False)),
        row("SH-L2-printed", closed, *lemma2(flat, beta, printed=True)),
        row("SH-L3", "left minus right side, largest", both["lemma3"], 0.0),
        control("SH-L3", "left minus right side with heads that do not move", fixed, 0.0),
        row("SH-L3-drift", "left minus right side where the drift leads", turned["lemma3"], 0.0),
        control("SH-L3-drift", "left minus right side there without the drift", turned["lemma3_short"], 0.0),
        row("SH-L4", "left / right side, largest", both["lemma4"], 1.0),
        row("SH-L4-printed", leads, noisy["lemma4"], 1.0),
        row("SH-L4-corrected", "left / right side there with b3^2 at the noise", noisy["corrected4"], 1.0),
    ]
