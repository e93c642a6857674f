"""GFL-APPNP's algorithm, identities, theorems and privacy: the runs behind these exhibits, none of them a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedrepro.exhibits import Exhibit
from fedrepro.runs import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

GRAPHS = ("csbm-DNC", "csbm-SNC", "csbm-SC", "csbm-d25", "csbm-d15", "csbm-d10", "csbm-d5")
NEAR = {"T": (125, 250, 500, 1000, 2000), "I": (1, 2, 5, 10, 25, 50), "sigma_H": (0.1, 0.3, 1, 3, 10)}
BASE = {"updates": 500, "local_epochs": 10, "lr": 0.2, "error": 0, "batch": 5}


def _check(name: str, datasets: tuple[str, ...] = ("",), options: dict[str, Any] | None = None) -> list[Run]:
    return sweep(task="check", paper="gfl", method=name, dataset=list(datasets), options=options or {})


def weights(profile: str) -> list[Run]:
    """GFL-I1."""
    return _check("gfl-weights")


def statistics(profile: str) -> list[Run]:
    """GFL-I4, I5, P1, P3, P4, P5."""
    return _check("gfl-statistics", GRAPHS)


def subcora(profile: str) -> list[Run]:
    """GFL-P2."""
    if profile == "smoke":
        return []
    return sweep(task="check", paper="gfl", method="gfl-subcora", dataset=["subCora", "subCora in set order"],
                 seed=range(20))  # fmt: skip


def identities(profile: str) -> list[Run]:
    """GFL-I2, I3, I6."""
    return [
        *_check("gfl-gradient-split", ("csbm-DNC", "csbm-SC")),
        *_check("gfl-one-local-step", ("csbm-DNC", "csbm-SC"), {"rounds": 5 if profile == "smoke" else 50}),
        *_check("gfl-identity-aggregator", ("csbm-SC",)),
    ]


def algorithm(profile: str) -> list[Run]:
    """GFL-A1, A2, F1a, F1b."""
    return _check("gfl-algorithm", ("csbm-DNC", "csbm-SC"), {"local_epochs": [1, 5]})


STEPS = {  # of Figure 1(a)
    "up.weights": "(i) models", "down.weights": "(ii) aggregated model",
    "up.h": "(iii) hidden representations", "up.gradient of h": "(iii) their gradients",
    "down.C": "(iv) aggregated representations", "down.gradient of C": "(iv) their gradients",
}  # fmt: skip


def steps(frame: pd.DataFrame) -> pd.DataFrame:
    """GFL-F1a: scalars of a round by step of Figure 1(a), all clients together."""
    import pandas

    rows = [
        {"dataset": row["dataset"], "clients": row["clients"], "step": step, "direction": name.partition(".")[0],
         "scalars": row[f"sent.{name}"], "runs": 1}
        for row in frame.drop_duplicates("dataset").to_dict("records") for name, step in STEPS.items()
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=["dataset", "clients", "step", "direction", "scalars", "runs"])


def parts(frame: pd.DataFrame) -> pd.DataFrame:
    """GFL-F1b: what a client computes with: its size, how many differ between clients, whether it is trained."""
    import pandas

    rows = [
        {"dataset": row["dataset"], "clients": row["clients"], "part": part, "scalars": row[f"{part}.scalars"],
         "different": row[f"{part}.different"], "trained": part == "encoder", "runs": 1}
        for row in frame.drop_duplicates("dataset").to_dict("records") for part in ("encoder", "aggregator")
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=["dataset", "clients", "part", "scalars", "different", "trained", "runs"])


def lemma(profile: str) -> list[Run]:
    """GFL-L1."""
    local, rounds = {"smoke": ([5], 2), "quick": ([1, 10, 20], 20), "paper": ([1, 10, 20, 50], 20)}[profile]
    return _check("gfl-compensation-error", ("csbm-DNC",), {"local_epochs": local, "lr": [0.1, 0.5], "rounds": rounds})


def rates(profile: str) -> list[Run]:
    """GFL-Th1 (fixed step) and GFL-Th2 (eta = sqrt(N/T)), one axis at a time around `BASE`."""
    seeds = {"smoke": 1, "quick": 1, "paper": 5}[profile]
    smoke = profile == "smoke"
    points: list[tuple[str, dict[str, Any]]] = []
    for axis, values in NEAR.items():
        for value in values[:2] if smoke else values:
            name = {"T": "updates", "I": "local_epochs", "sigma_H": "error"}[axis]
            points.append(("csbm-n40", {**BASE, name: value, "lr": 0 if axis == "T" else BASE["lr"]}))
    for nodes in (10, 20) if smoke else (10, 20, 40, 80):
        points.append((f"csbm-n{nodes}", {**BASE, "lr": 0, "local_epochs": 1}))
    for degree in (25, 5) if smoke else (25, 15, 10, 5):
        points.append((f"csbm-d{degree}", dict(BASE)))
    runs = []
    for dataset, options in points:
        if smoke:
            options = {**options, "updates": options["updates"] // 5, "local_epochs": min(4, options["local_epochs"])}
        runs += sweep(task="check", paper="gfl", method="gfl-rate", dataset=dataset, seed=range(seeds), options=options)
    return list(dict.fromkeys(runs))


def privacy(profile: str) -> list[Run]:
    """What server and neighbour rebuild of x, with and without V1's noise, against I and the number of neighbours."""
    seeds, updates = {"smoke": (1, 60), "quick": (1, 600), "paper": (5, 600)}[profile]
    options: dict[str, Any] = {"noise": [0, 1], "updates": updates, "local_epochs": [1, 10, 20, 50]}
    if profile == "smoke":
        options["local_epochs"] = [1, 10]
    common: dict[str, Any] = {"task": "attack", "paper": "gfl", "method": "gfl-reconstruction", "seed": range(seeds)}
    server = sweep(options={**options, "party": "server", "neighbours": 4}, **common)
    return server + sweep(options={**options, "party": "client", "neighbours": [1, 2, 4, 8, 16]}, **common)


EXHIBITS = [
    *(Exhibit(name, "gfl", "gfl/5-gfl-appnp", title, grid) for name, title, grid in (
        ("GFL-A1", "Algorithm 1 word by word against the method", algorithm),
        ("GFL-A2", "The messages of a round", algorithm),
        ("GFL-F1a", "The messages of a round, step by step", algorithm),
        ("GFL-F1b", "One encoder, an aggregator for each client", algorithm),
        ("GFL-I1", "Weights of the propagation matrix", weights),
        ("GFL-I2", "The gradient split of Eq. 15b", identities),
        ("GFL-I3", "One local step equals central APPNP", identities),
        ("GFL-I6", "The identity as aggregator is FedAvg", identities),
        ("GFL-I5", "phi of the block models", statistics),
        ("GFL-P1", "Data of DNC", statistics),
        ("GFL-P2", "subCora", subcora),
        ("GFL-P3", "Data of SNC", statistics),
        ("GFL-P4", "Data of SC", statistics),
        ("GFL-P5", "Data of varying connectivity", statistics),
    )),
    *(Exhibit(name, "gfl", "gfl/4-theory", title, grid) for name, title, grid in (
        ("GFL-Th1", "Scaling of the mean squared gradient norm", rates),
        ("GFL-Th2", "The same at eta = sqrt(N/T)", rates),
        ("GFL-L1", "Error of the compensation against its bound", lemma),
        ("GFL-I4", "lambda_max and connectivity", statistics),
    )),
    Exhibit("GFL-Q7", "gfl", "gfl/A-supplement", "What server and neighbours can rebuild", privacy),
]  # fmt: skip
