"""Feras's algorithm, identities, theorems and privacy: the runs behind these exhibits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

Get = Callable[..., "pd.DataFrame"]
COLUMNS = ["id", "statement", "measured", "bound", "verdict"]
SPLIT = "66/12/22"
WIDTHS, KAPPAS = (64, 256, 1024, 2048), (30, 60)  # of the attack
ATTACKED = 100  # nodes of the part of the graph it is tried on


def identities(profile: str) -> list[Run]:
    """FR-F1, A1, A2, I1, I2, C1, C2, C3, without data."""
    return [Run("check", "feras", "feras-identities")]


def contraction(profile: str) -> list[Run]:
    """FR-Th1, L1, L2, Th2: constants of random two-layer models over learning rate and regularization."""
    return [Run("check", "feras", "feras-contraction", options={"trials": 20 if profile == "smoke" else 200})]


def rate(profile: str) -> list[Run]:
    """FR-Th3: distance to the fixed point over 200 iterations, for q = 1, 5 and 10."""
    return [Run("check", "feras", "feras-rate", options={"steps": 50 if profile == "smoke" else 200})]


def looser(profile: str) -> list[Run]:
    """FR-Th4: the spectral radius with and without sharing, on random graphs."""
    trials = {"smoke": [50], "quick": [500], "paper": [500, 5000]}[profile]
    return sweep(task="check", paper="feras", method="feras-looser", options={"trials": trials})


def conditions(profile: str) -> list[Run]:
    """Whether Lemma 4.2's conditions hold at the experiments' settings, features as trained on and non-negative."""
    graphs = {"smoke": ["Cora~standin"], "quick": ["Photo"], "paper": ["Photo", "Computers", "PubMed"]}[profile]
    return sweep(
        task="check", paper="feras", method="feras-conditions", dataset=graphs, split=SPLIT,
        prepare=["standardized"] if profile == "smoke" else ["standardized", "unit-norm"],
        partition="private-public(kappa=0.6)", clients=3, options={"hidden": 16 if profile == "smoke" else 128},
    )  # fmt: skip


def privacy(profile: str) -> list[Run]:
    """What the server rebuilds of the features from shared embeddings, against depth, width, kappa and messages."""
    smoke = profile == "smoke"
    graphs = {"smoke": ["Cora~standin"], "quick": ["Photo"], "paper": ["Photo", "PubMed"]}[profile]
    shared: dict[str, Any] = {
        "task": "attack", "paper": "feras", "method": "feras-inversion", "dataset": graphs, "prepare": "standardized",
        "split": SPLIT, "clients": 3,
    }  # fmt: skip
    if smoke:
        options = {"depth": [1, 2], "hidden": 16, "nodes": 60, "steps": 20}
        return sweep(partition="private-public(kappa=0.6)", options=options, **shared)
    quick = profile == "quick"
    partitions = [f"private-public(kappa={kappa / 100:g})" for kappa in (KAPPAS[1:] if quick else KAPPAS)]
    seeds = range(1 if quick else 3)
    widths = [WIDTHS[0], WIDTHS[2]] if quick else list(WIDTHS)
    options = {"depth": [1, 2], "hidden": widths, "nodes": ATTACKED}
    runs = sweep(partition=partitions, options=options, seed=seeds, **shared)
    options = {"depth": 1, "hidden": WIDTHS[3], "nodes": ATTACKED}
    if quick:  # a fit to several messages takes many minutes; a layer as wide as this gives all away in one
        return runs + sweep(partition=partitions[-1], options=options, seed=seeds, **shared)
    options |= {"hidden": list(WIDTHS[1:3]), "observations": [4, 16]}
    return runs + sweep(partition=partitions[-1], options=options, seed=seeds, **shared)


def check_rows(frame: pd.DataFrame, *prefixes: str) -> pd.DataFrame:
    """The rows of checks in the records of a frame whose id begins with one of `prefixes` (all, if none is given)."""
    import pandas as pd

    rows = [row for checks in frame.get("checks", ()) for row in (checks if isinstance(checks, list | tuple) else ())]
    return pd.DataFrame([row for row in rows if row["id"].startswith(prefixes or "")], columns=COLUMNS)


def contracting(get: Get) -> dict[str, bool]:
    """Claim 1's theorems as printed: `{id: whether it holds}`."""
    lemma, rates = check_rows(get("FR-L1"), "FR-L", "FR-Th"), check_rows(get("FR-Th3"), "FR-Th", "FR-X")
    held = _held(lemma, "FR-L1-layer1", "FR-L1-layer2", "FR-L2", "FR-Th2")
    return held | _held(rates, "FR-Th3", "FR-X1-q5", "FR-X1-q10")


def looser_bound(get: Get) -> dict[str, bool]:
    """Claim 2's theorem on non-negative and on signed features: `{id: whether it holds}`."""
    return _held(check_rows(get("FR-Th4"), "FR-Th4"), "FR-Th4", "FR-Th4-signed")


def _held(rows: pd.DataFrame, *ids: str) -> dict[str, bool]:
    found = {id: rows.loc[rows["id"].eq(id), "verdict"] for id in ids}
    return {id: bool(verdicts.eq("holds").all()) for id, verdicts in found.items() if len(verdicts)}


APPROACH, THEORY, LOOSER = "feras/3-feras", "feras/4-theory", "feras/B-looser-constraint"
EXHIBITS = [
    Exhibit(name, "feras", notebook, title, grid)
    for name, notebook, title, grid in (
        ("FR-F1", APPROACH, "The average at the server, nodes A, B and C", identities),
        ("FR-A1", APPROACH, "Algorithm 1 word by word against the method", identities),
        ("FR-A2", APPROACH, "The sequential table word by word against the method", identities),
        ("FR-privacy", APPROACH, "What the server rebuilds of the features", privacy),
        ("FR-I1", THEORY, "The sharing matrix", identities),
        ("FR-C1", THEORY, "The output is linear in the weights of each layer", identities),
        ("FR-C2", THEORY, "The update rule", identities),
        ("FR-Th1", THEORY, "Fixed point of a contraction", contraction),
        ("FR-L1", THEORY, "A local update is a contraction", contraction),
        ("FR-L1-settings", THEORY, "Do the conditions hold at the experiments' settings?", conditions),
        ("FR-L2", THEORY, "An average of contractions", contraction),
        ("FR-Th2", THEORY, "The whole round", contraction),
        ("FR-Th3", THEORY, "Rate of convergence for q = 1, 5, 10", rate),
        ("FR-I2", LOOSER, "The spectral radius factors", identities),
        ("FR-C3", LOOSER, "Norm bound for Hermitian matrices", identities),
        ("FR-Th4", LOOSER, "The spectral radius with and without sharing", looser),
    )
]
