"""FedSheafHN's identities, lemmas and theorems: the runs behind these exhibits."""

from __future__ import annotations

from typing import Any

from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

PAPER = "fedsheafhn"


def _check(name: str, profile: str, **options: Any) -> list[Run]:
    seeds = range({"smoke": 1, "quick": 2, "paper": 5}[profile])
    return sweep(task="check", paper=PAPER, method=name, seed=seeds, options=options)


def identities(profile: str) -> list[Run]:
    """SH-I1 to I3."""
    return _check("FedSheafHN-identities", profile)


def convergence(profile: str) -> list[Run]:
    """SH-Th1 and SH-L1 to L4."""
    options = {"rounds": 64} if profile == "smoke" else {}
    return _check("FedSheafHN-convergence", profile, **options)


def generalization(profile: str) -> list[Run]:
    """SH-Th2."""
    options = {"most_clients": 16, "samples": 100} if profile == "smoke" else {}
    return _check("FedSheafHN-generalization", profile, **options)


_METHOD, _CONVERGENCE = "fedsheafhn/3-method", "fedsheafhn/B-convergence"

EXHIBITS = [
    Exhibit(name, PAPER, notebook, title, grid) for name, notebook, title, grid in (
        ("SH-I1", _METHOD, "Sheaf Laplacian and its normalized form", identities),
        ("SH-I2", _METHOD, "Diffusion step", identities),
        ("SH-I3", _METHOD, "Gradients of the server by the chain rule", identities),
        ("SH-Th1", _CONVERGENCE, "Convergence", convergence),
        ("SH-L1", _CONVERGENCE, "The average loss is smooth in all weights", convergence),
        ("SH-L2", _CONVERGENCE, "Drift of a client over its local steps", convergence),
        ("SH-L3", _CONVERGENCE, "Descent of the loss over one round", convergence),
        ("SH-L4", _CONVERGENCE, "Size of one update of the hypernetwork", convergence),
        ("SH-Th2", "fedsheafhn/C-generalization", "Generalization", generalization),
    )
]  # fmt: skip
