"""FedSheafHN: the settings all its exhibits share, and the runs of one cell of its tables.

What the paper fixes: METIS partitions, 40/30/30, two-layer GCN clients of width 128, rounds and local epochs by data
set. What it leaves open is listed in `fedsheafhn-deviations.csv`; what of it are numbers is chosen on validation, by as
many trials for every method (`POINTS`, `tuning`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

PAPER = "fedsheafhn"
ARXIV = "ogbn-arxiv"
STANDIN = f"{ARXIV}~standin"
QUICK = "Cora"  # the graph of the profile `quick`
DATASETS = ("Cora", "CiteSeer", "PubMed", "Computers", "Photo", ARXIV)
SEEDS = range(5)  # "five different runs"
# A stand-in is drawn with a seed of its own, above the five: a budget is spent on the real graphs first.
STANDIN_SEED, STANDIN_ROUNDS = 5, 5

PARTITIONS = {
    10: "metis",
    20: "metis",
    30: "overlapping-metis(parts=6)",
    50: "overlapping-metis(parts=10)",
    100: "metis",
}
ROUNDS = dict.fromkeys(DATASETS, 100) | {"Photo": 150, ARXIV: 150}
EPOCHS = {"Cora": 3, "CiteSeer": 3, "PubMed": 15, "Computers": 10, "Photo": 10, ARXIV: 10}
SPLIT = "40/30/30"
CLIENT = {"model": "GCNHead", "hidden": 128, "dropout": 0.5}
# The authors' public scripts, which exist for this graph alone: all clients' dropout, and what FedSheafHN has there.
ARXIV_CLIENT = {"dropout": 0.6}
ARXIV_SHEAF: dict[int, dict[str, Any]] = {
    n: {"sheaf_lr": sheaf, "hyper_lr": hyper, "lr": lr, "warmup": 50}
    for n, sheaf, hyper, lr in (
        (10, 0.001, 0.01, 0.01), (20, 0.001, 0.001, 0.01), (30, 0.01, 0.001, 0.01), (50, 0.01, 0.001, 0.02),
    )
}  # fmt: skip
SMOKE: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "hidden": 16}
SMOKE_MORE: dict[str, dict[str, Any]] = {
    "FedSage+": {"generator_epochs": 1, "generator_width": 16, "generator_hidden": 16, "latent": 16, "most": 1}
}


class Row(NamedTuple):
    """One row of the tables.

    Args:
        view: the model its own paper evaluates: "before", what a client holds between rounds (the averaged or
            generated model), "after" its local training, or the "better" of the two on validation nodes.
        options: of the method, beyond the client's.
        tried: two sets of options of its own, the default first.
        rates: the clients' learning rates that are tried.
    """

    view: str
    options: dict[str, Any]
    tried: tuple[dict[str, Any], dict[str, Any]]
    rates: tuple[float, float, float] = (0.01, 0.02, 0.001)  # SH-T9


def _two(option: str, default: float, other: float) -> tuple[dict[str, Any], dict[str, Any]]:
    return {option: default}, {option: other}


_DROPOUT = _two("dropout", 0.5, 0.3)
METHODS: dict[str, Row] = {
    "Local": Row("after", {}, _DROPOUT),
    "FedAvg": Row("before", {}, _DROPOUT),
    "FedProx": Row("before", {}, _two("mu", 0.01, 0.001)),
    # SH-B1: with 2048 and 20 its generator would cost many times the training itself.
    "FedSage+": Row("before", {"generator_width": 256, "generator_epochs": 5}, _DROPOUT),
    # SH-B2: moments of Adam are kept between rounds by every method that has Adam.
    "FGGP": Row("before", {"optimizer_state": "kept"}, _two("contrast", 1.0, 0.1)),
    "FedPer": Row("after", {}, _DROPOUT),
    # SH-B3: with Adam at the clients its hypernetwork dies.
    "pFedHN": Row("before", {"optimizer": "sgd", "momentum": 0.9}, _two("server_lr", 0.01, 0.1), (0.5, 0.2, 0.05)),
    "pFedGraph": Row("better", {"optimizer_state": "kept"}, _two("alpha", 0.8, 0.2)),
    "FED-PUB": Row("after", {"sparsity": 0.001}, ({"penalties": "coded"}, {"penalties": "printed"})),  # SH-B4
    "Flow": Row("after", {}, _two("penalty", 0.01, 0.1)),
    # SH-Q13: dropout at the server is 0.3 in Table 9; on Cora, CiteSeer and Photo validation takes none.
    "FedSheafHN": Row(
        "after", {}, ({"hyper_dropout": 0.3, "sheaf_dropout": 0.3}, {"hyper_dropout": 0.0, "sheaf_dropout": 0.0})
    ),
}
OURS = "FedSheafHN"
OTHERS = tuple(name for name in METHODS if name != OURS)
PERSONAL = ("pFedGraph", "FED-PUB", "Flow", OURS)  # the rows of SH-T3
WEIGHT_DECAYS = (0.0005, 1e-6)  # SH-Q13: of Table 9, and of FED-PUB's code, from which Local and FedAvg are
POINTS: dict[str, list[dict[str, Any]]] = {
    name: [{"lr": lr, **own, "weight_decay": decay} for decay in WEIGHT_DECAYS for own in row.tried for lr in row.rates]
    for name, row in METHODS.items()
}
TUNED = ("Cora", "CiteSeer", "Photo", "PubMed")
LIKE = {"Computers": "Photo", ARXIV: "PubMed"}  # whose choice a data set takes
TUNING_CLIENTS, TUNING_SEED = 10, 100  # a seed that no reported run uses
TUNING_ROUNDS = dict.fromkeys(TUNED, 30) | {"PubMed": 10}  # 90 to 300 local epochs
CHOSEN = Path(__file__).parents[1] / "chosen.csv"
CURVES = ("Cora", "CiteSeer", "Computers")  # SH-F4
DRAWN = tuple(name for name in METHODS if name not in ("FedProx", "FedSage+", "FGGP"))  # its lines: eight colours
EVERY_ROUND, CLIENTS = ("val", "test_clients", "clients"), ("clients",)  # what runs keep beside their scores
ABLATED = ("Cora", "Computers", ARXIV)  # SH-T3 to T6, F1, F5, F7: the paper has ogbn-arxiv alone


# SH-T4: rows and what each adds to the one before. SH-Q4, SH-Q8: "+ Hypernetwork" has one-hot client vectors and no
# graph; "+ Collaboration graph" feeds embeddings straight to the hypernetwork, made once.
STATIC: dict[str, Any] = {"refresh": 0}
MODULES: dict[str, dict[str, Any]] = {
    "+ Hypernetwork": {"vectors": "one-hot", "diffusion": "none", "attention": "none", **STATIC},
    "+ Collaboration graph": {"diffusion": "none", "attention": "none", **STATIC},
    "+ Sheaf diffusion": {"attention": "none", **STATIC},
    "+ Attention": STATIC,
    "+ Dynamic embedding": {},
}
BASE_MODEL = "Base model (FedAvg)"
NETWORKS: dict[str, dict[str, Any]] = {
    "w/o Sheaf diffusion": {"diffusion": "none"},
    "w/ GCN": {"diffusion": "gcn"},
    "w/ GAT": {"diffusion": "gat"},
    "w/ Sheaf diffusion": {},
}
# SH-M2, ours: other readings of what the paper leaves open, one at a time.
READINGS: dict[str, dict[str, Any]] = {
    "as in SH-T1": {},
    "weight decay of Table 9": {"weight_decay": WEIGHT_DECAYS[0]},
    "generated weights scaled, not anchored": {"output": "scaled"},
    "embeddings not standardized": {"standardized": False},
    "server's dropout of Table 9": {"hyper_dropout": 0.3, "sheaf_dropout": 0.3},
    "complete graph": {"graph": "complete"},
    "free attention matrix": {"attention": "free"},
    "fresh embeddings": {"age": "fresh"},
    "second convolution as head": {"model": "GCN"},
    "plain server steps": {"server_optimizer": "sgd"},
    "GCN in the sheaf's place": {"diffusion": "gcn"},
    "GCN with a residual": {"diffusion": "gcn", "residual": True},
    "GAT in the sheaf's place": {"diffusion": "gat"},
    "GAT with a residual": {"diffusion": "gat", "residual": True},
    # Options that were not tuned, at other values: rates and channels of SH-T9, maps, layers, age of the embeddings.
    "hypernetwork's rate 0.01": {"hyper_lr": 0.01},
    "hypernetwork's rate 0.02": {"hyper_lr": 0.02},
    "sheaf's rate 0.02": {"sheaf_lr": 0.02},
    "sheaf's rate 0.01": {"sheaf_lr": 0.01},
    "sheaf's rate 0.0001": {"sheaf_lr": 0.0001},
    "5 channels": {"channels": 5},
    "10 channels": {"channels": 10},
    "linear learner of the maps": {"learner": "linear"},
    "diagonal maps, d = 2": {"stalk": 2},
    "orthogonal maps, d = 2": {"maps": "orthogonal", "stalk": 2},
    "general maps, d = 2": {"maps": "general", "stalk": 2},
    "one layer of diffusion": {"steps": 1},
    "two layers of diffusion": {"steps": 2},
    "embeddings anew in every round": {"refresh": 1},
}
# SH-M3, ours: choices of ours that touch the baselines too, each beside the cell of SH-T1 without it.
CHOICES: dict[str, dict[str, Any]] = {
    "input features not dropped": {"input_dropout": 0.0},  # SH-DROP
    "generator's losses in the features' unit": {"scaled": True},  # SH-B1
}
VARIANTS = ("FedSheafHN (as printed)", "FedSheafHN (as coded)")
LOCAL_EPOCHS = (1, 3, 5, 10, 15, 20)
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5)  # of new clients
MALICIOUS = (0.0, 0.2, 0.4, 0.6)
ATTACKS = ("same", "gaussian")
PANELS = dict(zip("abc", CURVES))


def base(dataset: str) -> str:
    """The real data set's name behind a stand-in's."""
    return dataset.removesuffix("~standin")


@cache
def chosen() -> dict[tuple[str, str], int]:
    """(data set, method) -> place in `POINTS`, as chosen on validation; cells that are not there take the first."""
    with CHOSEN.open(encoding="utf-8", newline="") as file:
        return {(row["dataset"], row["method"]): int(row["place"]) for row in csv.DictReader(file)}


def point(method: str, dataset: str) -> dict[str, Any]:
    """The options chosen for a method on a data set."""
    name = base(dataset)
    return POINTS[method][chosen().get((LIKE.get(name, name), method), 0)]


def settings(method: str, dataset: str, clients: int) -> dict[str, Any]:
    """All options of a cell of SH-T1 or T2."""
    name = base(dataset)
    options = {**CLIENT, "rounds": ROUNDS[name], "local_epochs": EPOCHS[name], **METHODS[method].options}
    options |= point(method, dataset) | (ARXIV_CLIENT if name == ARXIV else {})
    if method == OURS and name == ARXIV:
        options |= ARXIV_SHEAF.get(clients, ARXIV_SHEAF[20])  # 100 clients are timed only (SH-T6)
    if method == "FED-PUB" and clients in (30, 50):
        options["scale"] = 5.0
    if method == "FedSage+" and name != ARXIV:
        options["row_sum"] = True  # SH-B1: generated features are prepared as the real ones are
    return options


def setup(dataset: str, clients: int) -> dict[str, Any]:
    """The fields of a run that say on what it trains."""
    prepare = "undirected+largest-component" if base(dataset) == ARXIV else "largest-component+row-sum"
    return {"dataset": dataset, "prepare": prepare, "split": SPLIT, "partition": PARTITIONS[clients],
            "clients": clients}  # fmt: skip


def cell(
    method: str, dataset: str, clients: int, seeds: Iterable[int], *, task: str = "train", name: str = "",
    tuned: dict[str, Any] | None = None, **more: Any,
) -> list[Run]:  # fmt: skip
    """The runs of one cell of SH-T1 or T2, or of a sweep around it.

    Args:
        method: a key of `METHODS`.
        task, name: another task built on the same settings, and its registered name.
        tuned: a point of `POINTS` in place of the chosen one.
        more: options beyond the cell's own, or in their place; `None` removes one.
    """
    options = {**settings(method, dataset, clients), **(tuned or {})}
    if task == "train" and not more.keys() - {"rounds"} and not tuned:
        options["series"] = _series(method, base(dataset), clients)
    options |= more
    options = {key: value for key, value in options.items() if value is not None}
    return sweep(task=task, paper=PAPER, method=name or method, seed=list(seeds), options=options,
                 **setup(dataset, clients))  # fmt: skip


def _series(method: str, dataset: str, clients: int) -> tuple[str, ...] | None:
    """What a run of SH-T1 or T2 keeps beside its scores: rounds for SH-F4 and M1, clients for SH-T3 and F1."""
    if clients == 20 and dataset in CURVES:
        return EVERY_ROUND
    return CLIENTS if clients in (20, 30) and dataset in ABLATED and method in PERSONAL else None


def smoke(method: str, clients: int, seeds: Iterable[int] = (0,), **more: Any) -> list[Run]:
    """Two rounds of a cell on the small stand-in."""
    if not more:
        more = {"series": EVERY_ROUND}
    return cell(method, "Cora~standin", clients, seeds, **SMOKE, **SMOKE_MORE.get(method, {}), **more)


def tuning(profile: str) -> list[Run]:
    """Twelve points for every method on each of `TUNED`: one seed, 10 clients, few rounds."""
    if profile == "smoke":
        return [run for method, points in POINTS.items() for run in _trial(method, "Cora~standin", points[0])]
    datasets = TUNED if profile == "paper" else ()
    return [run for d in datasets for method, points in POINTS.items() for p in points for run in _trial(method, d, p)]


def _trial(method: str, dataset: str, tried: dict[str, Any]) -> list[Run]:
    more: dict[str, Any] = {"rounds": TUNING_ROUNDS[base(dataset)]}
    if dataset.endswith("~standin"):
        more = {**SMOKE, **SMOKE_MORE.get(method, {})}
    return cell(method, dataset, TUNING_CLIENTS, [TUNING_SEED], tuned=tried, **more)


def rival_of(validation: Mapping[str, pd.Series]) -> str:
    """The method of highest mean validation accuracy, the first of equals; "" of none.

    Args:
        validation: accuracies on validation nodes, by method.
    """
    means = {name: scores.mean() for name, scores in validation.items()}
    return max(means, key=lambda name: means[name], default="")


def view_of(method: str, run: Mapping[str, Any]) -> str:
    """The view in which a run of a method is scored, "before" or "after".

    Args:
        run: a row of a frame; of a method that takes the better view, its validation accuracies at the best rounds.
    """
    view = METHODS.get(method, METHODS[OURS]).view
    if view != "better":
        return view
    before, after = (run.get(f"{name}.best.val_clients", math.nan) for name in ("before", "after"))
    return "before" if before > after else "after"


def trials(frame: pd.DataFrame) -> pd.DataFrame:
    """The tuning runs: data set, method, place in `POINTS`, the point, and validation accuracy and loss in the
    method's view, at the round of its best accuracy.
    """
    import pandas as pd

    rows = []
    for dataset in dict.fromkeys(frame["dataset"] if len(frame) else ()):
        for method, points in POINTS.items():
            mine = frame[frame["dataset"].eq(dataset) & frame["method"].eq(method)]
            for place, tried in enumerate(points):
                at = mine
                for name, value in tried.items():
                    at = at[at[name].eq(value)] if name in at else at.iloc[:0]
                found = at.to_dict("records")
                best = f"{view_of(method, found[0])}.best" if found else ""
                scores = {name: float(found[0][f"{best}.{column}"]) if found else None
                          for name, column in (("val", "val_clients"), ("val_loss", "val_loss"))}  # fmt: skip
                shared = {name: tried[name] for name in ("lr", "weight_decay")}
                own = ", ".join(f"{name}={_short(value)}" for name, value in tried.items() if name not in shared)
                rows.append({"dataset": dataset, "method": method, "place": place, **shared, "own": own, **scores})
    return pd.DataFrame(rows, columns=["dataset", "method", "place", "lr", "weight_decay", "own", "val", "val_loss"])


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def choices(frame: pd.DataFrame) -> pd.DataFrame:
    """The place of the highest validation accuracy per data set and method with all its trials stored, of equals the
    one of lower validation loss: the rows of `fedsheafhn-chosen.csv`.
    """
    table = trials(frame)
    full = table.groupby(["dataset", "method"])["val"].transform(lambda each: each.notna().all())
    table = table[full.astype(bool) & ~table["dataset"].str.endswith("~standin")]
    best = table.sort_values(["val", "val_loss"], ascending=[False, True]).drop_duplicates(["dataset", "method"])
    return best.sort_index()[["dataset", "method", "place"]].reset_index(drop=True)


def write_choices(frame: pd.DataFrame) -> pd.DataFrame:
    """Put the choices of the stored tuning runs into `fedsheafhn-chosen.csv`; returns them."""
    from fedrepro.reporting.files import csv_text, replace_file

    rows = choices(frame)
    replace_file(CHOSEN, csv_text(rows).encode())
    chosen.cache_clear()
    return rows
