"""FedSheafHN: the runs behind its tables and figures.

Settings are in `fedsheafhn_settings`, checks without training in `fedsheafhn_theory`, what is shown of the runs in
`fedsheafhn_frames`, the claims in `fedsheafhn_claims`. Where the paper has ogbn-arxiv alone, the same is run on
Computers and Cora; the stand-in of ogbn-arxiv has its size, five rounds and a seed of its own, and is held against no
published number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fedrepro.papers.fedsheafhn.exhibits import claims as fedsheafhn_claims
from fedrepro.papers.fedsheafhn.exhibits import theory as fedsheafhn_theory
from fedrepro.papers.fedsheafhn.exhibits.settings import (
    ABLATED,
    ATTACKS,
    BASE_MODEL,
    CHOICES,
    CLIENTS,
    DATASETS,
    EPOCHS,
    LOCAL_EPOCHS,
    MALICIOUS,
    METHODS,
    MODULES,
    NETWORKS,
    OURS,
    PANELS,
    PAPER,
    PERSONAL,
    QUICK,
    RATIOS,
    READINGS,
    SEEDS,
    STANDIN,
    STANDIN_ROUNDS,
    STANDIN_SEED,
    VARIANTS,
    cell,
    setup,
    smoke,
    tuning,
)
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

CLAIMS = fedsheafhn_claims.CLAIMS


# -- the tables -------------------------------------------------------------------------------------------------------


def table(counts: tuple[int, int]) -> Callable[[str], list[Run]]:
    """SH-T1 (10 and 20 clients) or SH-T2 (30 and 50): eleven methods on six graphs."""

    def grid(profile: str) -> list[Run]:
        if profile == "smoke":
            some = METHODS if 20 in counts else ("Local", *PERSONAL)
            return [run for method in some for run in smoke(method, 20 if 20 in counts else 30)]
        if profile == "quick":
            few = {10: ("Local", "FedAvg", OURS), 20: METHODS, 30: ("Local", "FedAvg", OURS), 50: ()}
            return [run for n in counts for method in few[n] for run in cell(method, QUICK, n, range(1))]
        runs = [r for d in DATASETS for n in counts for m in METHODS for r in cell(m, d, n, SEEDS)]
        return runs + [r for m in METHODS for r in standin(m, 20 if 20 in counts else 30)]

    return grid


def standin(method: str, clients: int, **more: Any) -> list[Run]:
    """One run on the stand-in of ogbn-arxiv."""
    return cell(method, STANDIN, clients, [STANDIN_SEED], rounds=STANDIN_ROUNDS, **more)


def spread(profile: str) -> list[Run]:
    """SH-T3 and SH-F1a: four personalized methods at 20 and 30 clients, client by client."""
    return [run for method in PERSONAL for run in _both(profile, method)]


def sheaf_and_none(profile: str) -> list[Run]:
    """SH-F1b: with and without sheaf collaboration, 20 clients."""
    return _ablated(profile, OURS, 20) + _ablated(profile, OURS, 20, **MODULES["+ Hypernetwork"])


def _both(profile: str, method: str, **more: Any) -> list[Run]:
    counts = (20, 30) if profile == "paper" else (20,)
    return [run for clients in counts for run in _ablated(profile, method, clients, **more)]


def _ablated(profile: str, method: str, clients: int, **more: Any) -> list[Run]:
    """A variant of a cell on the graphs of `ABLATED` and the stand-in."""
    if clients == 20 and more.get("vectors") == "one-hot":
        more["series"] = CLIENTS  # SH-F1b
    if profile == "smoke":
        return smoke(method, clients, **more)
    if profile == "quick":
        return cell(method, QUICK, clients, range(1), **more)
    runs = [run for dataset in ABLATED for run in cell(method, dataset, clients, SEEDS, **more)]
    return runs + standin(method, clients, **more)


def modules(profile: str) -> list[Run]:
    """SH-T4: FedAvg, then one module after another."""
    return [*_both(profile, "FedAvg"), *(r for more in MODULES.values() for r in _both(profile, OURS, **more))]


def networks(profile: str) -> list[Run]:
    """SH-T5: what runs on the collaboration graph."""
    return [run for more in NETWORKS.values() for run in _both(profile, OURS, **more)]


def readings(profile: str) -> list[Run]:
    """SH-M2, ours: other readings of what the paper leaves open, Cora, 20 clients."""
    if profile == "smoke":
        return [run for more in READINGS.values() for run in smoke(OURS, 20, **more)]
    if profile == "quick":
        return []
    runs = [run for more in READINGS.values() for run in cell(OURS, QUICK, 20, range(3), **more)]
    return list(dict.fromkeys(run for run in runs if _is_reading(run)))


def choices(profile: str) -> list[Run]:
    """SH-M3, ours: choices of ours that touch the baselines too, Cora, 20 clients, beside SH-T1's runs."""
    dropped, scaled = CHOICES.values()
    if profile == "smoke":
        some = [(OURS, {}), (OURS, dropped), ("FedSage+", {}), ("FedSage+", scaled)]
        return [run for method, more in some for run in smoke(method, 20, **more)]
    if profile == "quick":
        return [run for more in ({}, dropped) for method in ("Local", OURS)
                for run in cell(method, QUICK, 20, range(1), **more)]  # fmt: skip
    every: list[tuple[str, dict[str, Any]]] = [(m, more) for more in ({}, dropped) for m in METHODS]
    return [run for method, more in [*every, ("FedSage+", scaled)] for run in cell(method, QUICK, 20, range(3), **more)]


def _is_reading(run: Run) -> bool:
    """Whether a run is one of SH-T1's, or differs from them: a reading that is SH-T1's own has no run of its own."""
    usual = cell(OURS, run.dataset, run.clients, [run.seed])[0]
    return run == usual or run.options != {k: v for k, v in usual.options.items() if k != "series"}


def server(profile: str) -> list[Run]:
    """SH-T6, SH-X1: seconds and memory of the server a round."""
    rows: list[tuple[str, int]] = [("FedSheafHN", 20), ("w/o Sheaf diffusion", 20), ("w/ GCN", 20), (BASE_MODEL, 20),
                                   ("+ Hypernetwork", 20), ("FedSheafHN", 50), ("FedSheafHN", 100)]  # fmt: skip
    if profile == "smoke":
        few: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "hidden": 16, "memory": False}
        return [run for row, n in rows[-4:] for run in _bench(row, "Cora~standin", n, **few)]
    quick = [run for row, n in rows for run in _bench(row, QUICK, n, rounds=10)]
    if profile == "quick":
        return quick
    return quick + [run for d in ("Computers", STANDIN) for row, n in rows for run in _bench(row, d, n, rounds=3)]


def _bench(row: str, dataset: str, clients: int, **more: Any) -> list[Run]:
    method = "FedAvg" if row == BASE_MODEL else OURS
    variant = MODULES.get(row, NETWORKS.get(row, {}))
    more |= {"of": method, "warmup": None}  # a round costs the same after fewer epochs
    # All numbers of clients on METIS parts, as in the paper's table.
    runs = cell(method, dataset, 20, [0], task="bench", name="FedSheafHN-server", **variant, **more)
    return [run.replace(clients=clients) for run in runs]


# -- the figures ------------------------------------------------------------------------------------------------------


def convergence(panel: str) -> Callable[[str], list[Run]]:
    """SH-F4a to c: all methods, 20 clients, round by round. The paper does not name its three graphs."""
    dataset = PANELS[panel]

    def grid(profile: str) -> list[Run]:
        if profile == "smoke":
            return [run for method in METHODS for run in smoke(method, 20)]
        if profile == "quick":
            return [r for m in METHODS for r in cell(m, dataset, 20, range(1))] if dataset == QUICK else []
        return [run for method in METHODS for run in cell(method, dataset, 20, SEEDS)]

    return grid


def test_best(profile: str) -> list[Run]:
    """SH-M1, ours: what choosing the round on test nodes adds, over the runs of SH-F4."""
    return list(dict.fromkeys(run for panel in PANELS for run in convergence(panel)(profile)))


def local_epochs(profile: str) -> list[Run]:
    """SH-F6: FedSheafHN over T_c, 20 clients, on Computers as in the paper (scenario not stated) and on Cora."""
    if profile == "smoke":
        return [run for epochs in (1, 2) for run in cell(OURS, "Cora~standin", 20, [0], rounds=2, hidden=16,
                                                         local_epochs=epochs)]  # fmt: skip
    if profile == "quick":
        return _epochs(QUICK, range(1), (1, EPOCHS[QUICK]))
    return [run for dataset in ("Cora", "Computers") for run in _epochs(dataset, range(3), LOCAL_EPOCHS)]


def _epochs(dataset: str, seeds: Iterable[int], counts: tuple[int, ...]) -> list[Run]:
    return [run for epochs in counts
            for run in (cell(OURS, dataset, 20, seeds) if epochs == EPOCHS[dataset]
                        else cell(OURS, dataset, 20, seeds, local_epochs=epochs))]  # fmt: skip


def new_clients(profile: str) -> list[Run]:
    """SH-F5, SH-A2: a share of the 30 clients joins after training."""

    def grid(dataset: str, seeds: Iterable[int], ratios: tuple[float, ...], **more: Any) -> list[Run]:
        more |= {"task": "check", "name": "FedSheafHN-new-clients"}
        return [run for ratio in ratios for run in cell(OURS, dataset, 30, seeds, ratio=ratio, **more)]

    if profile == "smoke":
        return grid("Cora~standin", [0], RATIOS[:2], rounds=2, local_epochs=1, hidden=16)
    if profile == "quick":
        return grid(QUICK, [0], RATIOS[::4])
    runs = [run for dataset in ABLATED for run in grid(dataset, SEEDS, RATIOS)]
    return runs + grid(STANDIN, [STANDIN_SEED], RATIOS[::2], rounds=STANDIN_ROUNDS)


def malicious(profile: str) -> list[Run]:
    """SH-F7, SH-A3: a share of 20 clients sends forged embeddings (tau = 1)."""
    ratios = MALICIOUS if profile == "paper" else (0.0, 0.4)
    attacks = ATTACKS[:1] if profile == "quick" else ATTACKS
    return [run for method in (OURS, "FED-PUB") for ratio in ratios for attack in attacks[: 1 if ratio == 0 else 2]
            for run in _ablated(profile, method, 20,
                                **({"malicious": ratio, "attack": attack} if ratio else {}))]  # fmt: skip


def variants(profile: str) -> list[Run]:
    """SH-A1, SH-Q3: as printed and as coded beside the corrected form and Local, 10 clients."""
    both = (OURS, "Local")
    if profile == "smoke":
        return [r for name in (*both, *VARIANTS) for r in _variant(name, "Cora~standin", [0], rounds=2, local_epochs=1,
                                                                   hidden=16)]  # fmt: skip
    if profile == "quick":
        return [run for name in (*both, *VARIANTS) for run in _variant(name, QUICK, range(1))]
    return [
        r for d in ("Cora", "CiteSeer", "Photo") for name in (*both, *VARIANTS) for r in _variant(name, d, range(3))
    ]


def _variant(name: str, dataset: str, seeds: Iterable[int], **more: Any) -> list[Run]:
    method = OURS if name in VARIANTS else name
    if name == VARIANTS[1]:
        more["hyper_lr"] = None  # its own, which moves nothing
    return cell(method, dataset, 10, seeds, name=name, **more)


def exchanged(profile: str) -> list[Run]:
    """SH-F2: the diagram's messages, counted in runs of SH-T1 on Cora, FedAvg's beside them."""
    runs = table((10, 20))(profile)
    return [run for run in runs if run.method in (OURS, "FedAvg") and run.dataset.startswith(QUICK)]


def diffusion(profile: str) -> list[Run]:
    """SH-F3: what each layer of the sheaf does to the vectors of 20 clients, before training and after it."""
    more: dict[str, Any] = {"task": "check", "name": "FedSheafHN-diffusion"}
    if profile == "smoke":
        return cell(OURS, "Cora~standin", 20, [0], rounds=2, local_epochs=1, hidden=16, **more)
    datasets, seeds = ((QUICK,), range(1)) if profile == "quick" else (("Cora", "CiteSeer"), range(3))
    return [run for dataset in datasets for run in cell(OURS, dataset, 20, seeds, **more)]


# -- the data ---------------------------------------------------------------------------------------------------------


def statistics(counts: tuple[int, int]) -> Callable[[str], list[Run]]:
    """SH-T7 (10 and 20 clients) or SH-T8 (30 and 50)."""

    def grid(profile: str) -> list[Run]:
        datasets = {"smoke": ("Cora~standin",), "quick": DATASETS[:2], "paper": (*DATASETS, STANDIN)}[profile]
        seeds = SEEDS if profile == "paper" else range(1)
        out = []
        for dataset in datasets:
            mine = [STANDIN_SEED] if dataset == STANDIN else list(seeds)
            whole = {**setup(dataset, 10), "partition": "single", "clients": 1}
            for fields, each in ((whole, mine[:1]), *((setup(dataset, n), mine) for n in counts)):
                out += sweep(task="check", paper=PAPER, method="FedSheafHN-statistics", seed=each, **fields)
        return out

    return grid


def parts(counts: tuple[int, int]) -> Callable[[str], list[Run]]:
    """SH-P1 or P2: the manifests of one graph's partitions."""

    def grid(profile: str) -> list[Run]:
        dataset = "Cora~standin" if profile == "smoke" else QUICK
        made = [sweep(task="partition", paper=PAPER, method="manifest", **setup(dataset, n)) for n in counts]
        return [run for each in made for run in each]

    return grid


_RESULTS, _ABLATIONS, _SETUPS = "fedsheafhn/4.2-results", "fedsheafhn/4.3-ablations", "fedsheafhn/A-setups"
_DISCUSSION, _METHOD = "fedsheafhn/4.4-discussion", "fedsheafhn/3-method"

EXHIBITS = [
    *(Exhibit(name, PAPER, notebook, title, grid) for name, notebook, title, grid in (
        ("SH-T1", _RESULTS, "Accuracy without overlap and 10 or 20 clients", table((10, 20))),
        ("SH-T2", _RESULTS, "Accuracy with overlap and 30 or 50 clients", table((30, 50))),
        ("SH-T3", _RESULTS, "Spread of accuracy across clients", spread),
        ("SH-F1a", _RESULTS, "Accuracy of each of 20 clients for four methods", spread),
        ("SH-F1b", _RESULTS, "Accuracy of each client with and without sheaf collaboration", sheaf_and_none),
        *((f"SH-F4{p}", _RESULTS, f"Convergence on {PANELS[p]}", convergence(p)) for p in PANELS),
        ("SH-F5", _RESULTS, "Accuracy of new clients", new_clients),
        ("SH-A2", _RESULTS, "The procedure for a new client", new_clients),
        ("SH-M1", _RESULTS, "What choosing the round on test nodes adds", test_best),
        ("SH-T4", _ABLATIONS, "Modules added one after another", modules),
        ("SH-T5", _ABLATIONS, "Other networks on the collaboration graph", networks),
        ("SH-M2", _ABLATIONS, "Other readings of what the paper leaves open", readings),
        ("SH-M3", _ABLATIONS, "What two choices of ours are worth", choices),
        ("SH-F6", _ABLATIONS, "Accuracy against local epochs", local_epochs),
        ("SH-T6", _DISCUSSION, "Time and memory of the server", server),
        ("SH-X1", _DISCUSSION, "Server time for 50 and 100 clients", server),
        ("SH-F7", _DISCUSSION, "Accuracy against the share of malicious clients", malicious),
        ("SH-A3", _DISCUSSION, "The attack models", malicious),
        ("SH-F2", _METHOD, "Messages of FedSheafHN", exchanged),
        ("SH-F3", _METHOD, "Sheaf diffusion stage by stage", diffusion),
        ("SH-A1", _METHOD, "The three variants beside Local", variants),
        ("SH-T7", _SETUPS, "Statistics of the clients' graphs without overlap", statistics((10, 20))),
        ("SH-P1", _SETUPS, "METIS partition without overlap", parts((10, 20))),
        ("SH-T8", _SETUPS, "Statistics of the clients' graphs with overlap", statistics((30, 50))),
        ("SH-P2", _SETUPS, "METIS partition with sampled overlap", parts((30, 50))),
        ("SH-T9", _SETUPS, "Ranges of the hyper-parameters and what was tried", tuning),
    )),
    *fedsheafhn_theory.EXHIBITS,
]  # fmt: skip
