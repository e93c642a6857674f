"""Theorem 2 of FedSheafHN (Appendix C): how many samples make the empirical loss close to the expected one.

With M samples at each of N clients, the two losses differ by at most xi with probability 1 - delta if

    M = O( (d_i + (d_theta + d_phi + d_h) / N) 1/xi^2 log(R L (L_s + L_H + 1) / xi) + 1/(N xi^2) log(1/delta) )

d_i counts the parameters that belong to each client, d_s = d_theta + d_phi + d_h those that all clients share, and R
bounds their norm. Two families of tasks check the theorem:

    any parameters   The losses are linear in the parameters. The largest gap over all parameters is then known exactly:
                     R |mean_i e_i| for the shared ones and R mean_i |e_i| for each client's. Here e_i is the error
                     of a mean of M samples.
    trained          Least squares y = <x, phi> + <x', u_i> + noise is fitted to all clients together. Expected and
                     empirical loss at the fitted parameters are known exactly.

The theorem counts d_h, the parameters of a head, as if they were shared. Every client has its head (SH-A1), so that a
covering needs N d_h of them, and the heads' part of the gap does not shrink with N. If only heads are trained, the
printed xi goes to zero with N and the gap does not. Whatever the constant of the O, the gap therefore exceeds xi
for enough clients. The checks have the constant 1, and compare the gap with xi at three numbers of clients, which were
chosen after the gaps at them had been seen.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from fedrepro.engine.nn import random
from fedrepro.reporting.checks import Row, control, row, worst_of
from fedrepro.runs.run import Run

SHARED, OWN, RADIUS, DELTA = 24, 2, 1.0, 0.1  # d_s, d_i, R and delta
CLIENTS, SAMPLES = (1, 4, 16, 64), (50, 100, 200)
HEAD, MANY = 8, (64, 128, 256)  # d_h, and the numbers of clients whose heads are checked


def bound(clients: int, samples: int, shared: int = SHARED, personal: int = OWN) -> float:
    """Return the xi for which Theorem 2 asks for `samples`, with constant 1 and R L (L_s + L_H + 1) = 3 R.

    It solves M xi^2 = (d_i + d_s / N) log(3 R / xi) + log(1 / delta) / N by bisection. No gap exceeds sqrt(2) R, which
    is therefore the largest value returned.
    """
    size, low, high = personal + shared / clients, 1e-9, math.sqrt(2) * RADIUS
    for _ in range(100):
        xi = math.sqrt(low * high)
        enough = samples * xi**2 >= size * math.log(3 * RADIUS / xi) + math.log(1 / DELTA) / clients
        low, high = (low, xi) if enough else (xi, high)
    return high


def largest_gap(
    clients: int, samples: int, seed: int, shared: int = SHARED, personal: int = OWN, repeats: int = 60
) -> float:
    """Return the 1 - delta quantile, over draws of the samples, of the largest gap over all parameters.

    Samples are uniform on the sphere of radius 1/sqrt(2), in the coordinates of the shared and of the clients' own
    parameters alike.
    """
    gaps = np.zeros(repeats)
    for name, size in (("shared", shared), ("own", personal)):
        if not size:
            continue
        error = _means_on_sphere(clients, samples, size, repeats, seed, name) / math.sqrt(2)
        norm = np.linalg.norm(error.mean(1), axis=1) if name == "shared" else np.linalg.norm(error, axis=2).mean(1)
        gaps += RADIUS * norm
    return float(np.quantile(gaps, 1 - DELTA))


def _means_on_sphere(clients: int, samples: int, size: int, repeats: int, seed: int, name: str) -> np.ndarray:
    """Return means of `samples` unit vectors of random direction `[repeats, clients, size]`, in blocks for memory."""
    means = np.empty((repeats, clients, size))
    step = max(1, 400_000 // (clients * samples * size))
    for start in range(0, repeats, step):
        stop = min(start + step, repeats)
        shape = (stop - start, clients, samples, size)
        x = random.normal(shape, "sphere", seed, name, clients, samples, start).numpy()
        means[start:stop] = (x / np.linalg.norm(x, axis=3, keepdims=True)).mean(2)
    return means


def trained_gap(clients: int, samples: int, seed: int, repeats: int = 12) -> float:
    """Return expected minus empirical loss of the least-squares fit, for noise of variance 1; a mean over draws."""
    gaps = []
    for draw in range(repeats):
        key = ("tasks", seed, clients, samples, draw)
        x = random.normal((clients, samples, SHARED), *key, "shared").numpy()
        z = random.normal((clients, samples, OWN), *key, "own").numpy()
        phi_true = random.normal((SHARED,), *key, "phi").numpy()
        u_true = random.normal((clients, OWN), *key, "u").numpy()
        noise = random.normal((clients, samples), *key, "noise").numpy()
        y = x @ phi_true + np.einsum("nmd,nd->nm", z, u_true) + noise
        # Each client's u_i is eliminated first. The parts of x and y that are orthogonal to z determine phi.
        basis, _ = np.linalg.qr(z)
        left_x = x - basis @ (basis.transpose(0, 2, 1) @ x)
        left_y = y - np.einsum("nmd,nd->nm", basis, np.einsum("nmd,nm->nd", basis, y))
        phi = np.linalg.lstsq(left_x.reshape(-1, SHARED), left_y.ravel(), rcond=None)[0]
        rest = y - x @ phi
        u = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(z, rest, strict=True)])
        empirical = np.square(rest - np.einsum("nmd,nd->nm", z, u)).mean()
        expected = 1 + np.square(phi - phi_true).sum() + np.square(u - u_true).sum(1).mean()
        gaps.append(expected - empirical)
    return float(np.mean(gaps))


def generalization(run: Run) -> dict[str, Any]:
    """Check Theorem 2.

    Args:
        run: its options are "most_clients" and "samples", the largest N (64) and M (200).

    Returns:
        "result": `checks`, rows of `fedrepro.reporting.checks`; and `gap`, lists over all pairs of `N` and `M` of the
        largest gap `measured` over parameters, its `bound` xi and the gap `trained`.
    """
    most_clients = int(run.options.get("most_clients", CLIENTS[-1]))
    most_samples = int(run.options.get("samples", SAMPLES[-1]))
    grid = [(n, m) for n in CLIENTS if n <= most_clients for m in SAMPLES if m <= most_samples]
    gap: dict[str, list[Any]] = {
        "N": [n for n, _ in grid],
        "M": [m for _, m in grid],
        "measured": [largest_gap(n, m, run.seed) for n, m in grid],
        "bound": [bound(n, m) for n, m in grid],
        "trained": [trained_gap(n, m, run.seed) for n, m in grid],
    }
    return {"result": {"checks": _check_gaps(run.seed, gap), "gap": gap}}


def _check_gaps(seed: int, gap: dict[str, list[Any]]) -> list[Row]:
    """Check how the gaps depend on N and M."""
    index = {pair: i for i, pair in enumerate(zip(gap["N"], gap["M"], strict=True))}
    counts, sizes = (sorted({pair[axis] for pair in index}) for axis in (0, 1))
    few, many, small, large = counts[0], counts[-1], sizes[0], sizes[-1]

    def ratio(name: str, top: tuple[int, int], bottom: tuple[int, int]) -> float:
        """Return a gap over another one, each at a pair of N and M."""
        return float(gap[name][index[top]] / gap[name][index[bottom]])

    def growth(name: str) -> float:
        """Return the largest ratio of a gap to that with fewer clients, or with fewer samples."""
        by_n = [ratio(name, (b, m), (a, m)) for a, b in pairwise(counts) for m in sizes]
        by_m = [ratio(name, (n, b), (n, a)) for a, b in pairwise(sizes) for n in counts]
        return worst_of(by_n + by_m)

    worst = worst_of(m / b for m, b in zip(gap["measured"], gap["bound"], strict=True))
    by_m = abs(ratio("measured", (many, large), (many, small)) / (small / large) ** 0.5 - 1)
    one, two = (OWN + SHARED / n for n in (few, many))
    by_n = ratio("trained", (many, large), (few, large)) / (two / one)
    optimism = worst_of(gap["trained"][i] * m / (2 * (OWN + SHARED / n)) for (n, m), i in index.items())
    personal_gaps = [largest_gap(n, large, seed, 0, OWN) for n in (few, many)]
    shrinking = "the own parameters' gap falls as 1/sqrt(N)"
    return [
        row("SH-Th2", "largest gap over parameters / xi with constant 1 in the O, largest over N and M", worst, 1.0),
        row("SH-Th2-monotone", "largest gap's ratio to that with fewer N or M, largest", growth("measured"), 1.0),
        row("SH-Th2-trained", "trained gap's ratio to that with fewer N or M, largest", growth("trained"), 1.0),
        row("SH-Th2-M", "|ratio of gaps over M / 1/sqrt(ratio of M) - 1|", by_m, 0.1),
        row("SH-Th2-N", "trained gap's ratio over N / that of d_i + d_s / N", by_n, 1.5),
        row("SH-Th2-optimism", "trained gap / (2 (d_i + d_s / N) / M), largest", optimism, 3.0),
        control("SH-Th2", shrinking, personal_gaps[1] / personal_gaps[0], 2 * (few / many) ** 0.5),
        *_check_heads(seed, large),
    ]


def _check_heads(seed: int, samples: int) -> list[Row]:
    """Check the bound where only heads are trained, as printed and with every head counted as its client's own.

    The gap of as many shared parameters stays within the printed xi, which therefore misses only the number of heads.
    The control leaves out that a client's samples are independent.
    """
    heads = {n: largest_gap(n, samples, seed, 0, HEAD) for n in MANY}
    printed, corrected = ({n: bound(n, samples, *sizes) for n in MANY} for sizes in ((HEAD, 0), (0, HEAD)))
    shared = worst_of(largest_gap(n, samples, seed, HEAD, 0) / printed[n] for n in MANY)
    repeated = -worst_of(-largest_gap(n, 1, seed, 0, HEAD) / corrected[n] for n in MANY)  # the smallest, or NaN
    told = "heads alone, counted with d_h / N, constant 1 in the O: gap / xi at"
    alike = "heads counted with d_i, where all samples of a client are one: gap / xi, smallest over N"
    return [
        *(row(f"SH-Th2-printed-{n}", f"{told} N = {n}", heads[n] / printed[n], 1.0) for n in MANY),
        row("SH-Th2-shared", "as many shared parameters in the heads' place: gap / xi, largest over N", shared, 1.0),
        row(
            "SH-Th2-heads",
            "heads alone, counted with d_i: gap / xi, largest over N",
            worst_of(heads[n] / corrected[n] for n in MANY),
            1.0,
        ),
        control("SH-Th2-heads", alike, repeated, 1.0),
    ]
