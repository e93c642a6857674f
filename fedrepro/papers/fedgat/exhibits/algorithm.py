"""FedGAT's protocol, theory, communication and privacy: the runs behind its exhibits, and claims 4, 6, 7 and 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedrepro.papers.fedgat.exhibits.experiments import IID, NAMES, NON_IID, ROUNDS, chosen
from fedrepro.reporting.compare import Claim, slope
from fedrepro.reporting.legacy import Exhibit
from fedrepro.runs.run import Run, sweep

if TYPE_CHECKING:
    import pandas as pd

PARTIAL = "dirichlet(beta=100)"
CLIENTS, MANY_CLIENTS = (1, 2, 5, 10, 15, 20), (20, 40, 60, 80, 100)
SEEDS = range(3)
NOISE = (0.0, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
ATTACKED = 1000  # nodes attacked in `quick`; `paper` attacks all of them
FORMS = ("matrix", "vector")

_GRAPH = {"paper": "fedgat", "prepare": "unit-norm", "split": "public"}


def _standin(profile: str, dataset: str) -> str:
    return f"{dataset}~standin" if profile == "smoke" else dataset


# -- checks -----------------------------------------------------------------------------------------------------------


def identities(profile: str) -> list[Run]:
    """FG-I1 to FG-I5, without data."""
    return [Run("check", "fedgat", "FedGAT-identities")]


def theorems(profile: str) -> list[Run]:
    """FG-Th1 to FG-Th5 and FG-L1, without data."""
    return [Run("check", "fedgat", "FedGAT-theorems")]


def protocol(profile: str) -> list[Run]:
    """FG-A1 to FG-A4: the layer from messages against its edge form, at all nodes of real graphs."""
    options = {"nodes": 16, "whole": 6} if profile == "smoke" else {}
    datasets = ["Cora", "CiteSeer", "PubMed"] if profile == "paper" else [_standin(profile, "Cora")]
    return sweep(task="check", method="FedGAT-protocol", dataset=datasets, partition=NON_IID, clients=10,
                 options=options, **_GRAPH)  # fmt: skip


# -- communication ----------------------------------------------------------------------------------------------------


def traffic(profile: str, datasets: Sequence[str], clients: Sequence[int]) -> list[Run]:
    """What is sent before training, non-iid and iid, for each number of clients."""
    if profile == "smoke":
        clients = clients[1:3]
    seeds = [0] if profile == "smoke" else list(SEEDS)
    names = [_standin(profile, dataset) for dataset in datasets]
    return sweep(task="traffic", method="FedGAT", dataset=names, partition=[NON_IID, IID], clients=list(clients),
                 seed=seeds, **_GRAPH)  # fmt: skip


def manifests(profile: str) -> list[Run]:
    """FG-P1: the partitions for three betas at 10 clients."""
    datasets = ["Cora~standin"] if profile == "smoke" else ["Cora", "CiteSeer", "PubMed"]
    seeds = [0] if profile == "smoke" else list(SEEDS)
    return sweep(task="partition", method="manifest", dataset=datasets, partition=[NON_IID, PARTIAL, IID], clients=10,
                 seed=seeds, **_GRAPH)  # fmt: skip


# -- privacy ----------------------------------------------------------------------------------------------------------


def attack(profile: str) -> list[Run]:
    """FG-I6 and FG-Q7: both forms, with and without the one-neighbour rule."""
    options = {"form": list(FORMS), "lone": ["kept", "dropped"]}
    shared: dict[str, Any] = {"task": "attack", "method": "FedGAT", "partition": NON_IID, "clients": 10, **_GRAPH}
    if profile == "smoke":
        return sweep(dataset="Cora~standin", options=options | {"nodes": 12}, **shared)
    some = sweep(dataset="Cora", options={"form": list(FORMS), "lone": "kept", "nodes": ATTACKED}, **shared)
    every = sweep(dataset="Cora", options=options | {"nodes": 0}, **shared)
    return some if profile == "quick" else some + every


def noise(profile: str) -> list[Run]:
    """The attack on 200 nodes under noise of growing size, and what the noise costs FedGAT's runs of FG-T1."""
    shared: dict[str, Any] = {"partition": NON_IID, "clients": 10, **_GRAPH}
    training = {**chosen("FedGAT", "Cora", NON_IID), "rounds": ROUNDS, "degree": 16, "interval": 4}
    if profile == "smoke":
        return sweep(task="attack", method="FedGAT", dataset="Cora~standin",
                     options={"form": list(FORMS), "nodes": 6, "noise": [0.0, 0.01]}, **shared)  # fmt: skip
    quick = profile == "quick"
    strengths, priced = list(NOISE[::4] if quick else NOISE), list(NOISE[:5:4] if quick else NOISE)
    seeds = [0] if quick else list(SEEDS)
    attacks = sweep(task="attack", method="FedGAT", dataset="Cora", seed=seeds,
                    options={"form": list(FORMS), "nodes": 200, "noise": strengths}, **shared)  # fmt: skip
    forms = list(FORMS)[: 1 if quick else None]
    prices = sweep(task="attack", method="FedGAT-price", dataset="Cora", seed=seeds,
                   options={"form": forms, "noise": priced, **training}, **shared)  # fmt: skip
    return attacks + prices


# -- frames -----------------------------------------------------------------------------------------------------------


def check_rows(frame: pd.DataFrame, *prefixes: str) -> pd.DataFrame:
    """The rows of checks in the records of a frame whose id begins with one of `prefixes` (all, if none is given)."""
    import pandas as pd

    columns = ["id", "statement", "measured", "bound", "verdict"]
    rows = [row for checks in (frame["checks"] if len(frame) else ()) for row in checks]
    return pd.DataFrame([row for row in rows if row["id"].startswith(prefixes or "")], columns=columns)


def protocol_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """FG-A1 to FG-A4 as rows of checks: the largest error of a layer over all graphs, and the controls."""
    import pandas as pd

    bound = 1e-9
    if frame.empty:
        return check_rows(frame)
    where = ", ".join(f"{r.dataset} ({r.whole} whole, {r.in_blocks} in blocks)" for r in frame.itertuples())
    matrix = max(frame["matrix"].max(), frame["matrix_in_blocks"].max())
    vector = frame["vector"].max()
    texts = {
        "FG-A1": (f"the messages of Algorithm 1 give the layer of the edge form at every node: {where}", matrix),
        "FG-A2": ("layer 1 of Algorithm 2 (Eq. 14, 12, 7), 8 heads, degree 16, float64", matrix),
        "FG-A3": ("Vector FedGAT, steps 1 to 4, gives the same layer at every node", vector),
        "FG-A4": ("steps 1 to 3 of Section 4 with either form", max(matrix, vector)),
    }
    rows = [_row(id, text, error, bound, "holds" if error <= bound else "fails") for id, (text, error) in texts.items()]
    for id, name in (("FG-A1", "matrix_control"), ("FG-A3", "vector_control")):
        error = frame[name].min()
        text = "the same with features of other columns in the message"
        rows.append(_row(f"{id}-control", text, error, bound, BROKEN if error > bound else UNBROKEN))
    return pd.DataFrame(rows)


BROKEN, UNBROKEN = "fails, as it must", "passes, as it must not"  # what a negative control may come out as


def _row(id: str, statement: str, measured: float, bound: float, verdict: str) -> dict[str, Any]:
    return {"id": id, "statement": statement, "measured": float(measured), "bound": float(bound), "verdict": verdict}


def attack_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """FG-I6 as rows of checks: the paper's claim that no node's features are revealed, by form, and the control."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for form, group in frame[frame["lone"] == "kept"].groupby("form", sort=False) if len(frame) else ():
        worst = group.loc[group["result.nodes"].idxmax()]
        error, share = worst["error.largest"], group["control"].max()
        id = "FG-I6" if form == "matrix" else "FG-I6-vector"
        text = (
            f"{str(form).capitalize()} messages reveal sums only (largest error of a neighbour's recovered features, "
            f"{worst['exact']:.0f} of {worst['result.nodes']:.0f} nodes; below the bound they are revealed)"
        )
        rows.append(_row(id, text, error, 1e-8, "fails" if error < 1e-8 else "holds"))
        text = "the same attack on messages about other features recovers these (largest share)"
        rows.append(_row(f"{id}-control", text, share, 0.0, BROKEN if share == 0 else UNBROKEN))
    return pd.DataFrame(rows, columns=["id", "statement", "measured", "bound", "verdict"])


def communication(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of what is sent, one row per graph, partition and number of clients, beside Theorem 1."""
    columns = {
        "matrix.scalars": "matrix_scalars", "vector.scalars": "vector_scalars", "raw.scalars": "raw_scalars",
        "matrix.bytes": "matrix_bytes", "vector.bytes": "vector_bytes", "raw.bytes": "raw_bytes",
        "theorem1.cubed": "theorem1_cubed", "theorem1.squared": "theorem1_squared",
        "cross_client_edges": "cross_client_edges",
    }  # fmt: skip
    keys = ["dataset", "partition", "clients"]
    groups = frame.groupby(keys, sort=False)
    table = groups[list(columns)].mean().rename(columns=columns)
    table["matrix_sd"] = groups["matrix.scalars"].std().fillna(0.0)
    table["vector_sd"] = groups["vector.scalars"].std().fillna(0.0)
    table["matrix_over_vector"] = table["matrix_scalars"] / table["vector_scalars"]
    table["runs"] = groups["seed"].count()
    return table.reset_index()


# -- the headline claims ----------------------------------------------------------------------------------------------


Get = Callable[..., "pd.DataFrame"]
NOTHING = ("no runs stored", "cannot be checked here")


def _verdict(parts: Sequence[bool]) -> str:
    return "holds" if all(parts) else "holds in part" if any(parts) else "fails"


def _claim_cost(get: Get) -> tuple[str, str]:
    """The count rises with clients, by a power of 0.8 to 1.2 over 20 to 100 clients, and iid is dearer at each."""
    frame = get("FG-F4")
    if frame.empty:
        return NOTHING
    table = communication(frame)
    parts, text = [], []
    for name, group in table.groupby("partition", sort=False):
        fit = slope(group["clients"].tolist(), group["matrix_scalars"].tolist())
        parts += [fit.slope > 0, 0.8 <= fit.slope <= 1.2]
        text.append(f"{NAMES[str(name)]} clients^{fit.slope:.2f}")
    wide = table.pivot(index="clients", columns="partition", values="matrix_scalars")
    dearer = int((wide[IID] > wide[NON_IID]).sum())
    parts.append(dearer == len(wide))
    return f"{', '.join(text)}; iid dearer at {dearer} of {len(wide)} numbers of clients", _verdict(parts)


def _claim_vector(get: Get) -> tuple[str, str]:
    """Same layer to 1e-9; Matrix over Vector scalars from 8 to 12 at each number of clients; Vector reveals more."""
    layers, cost, leak = get("FG-A3"), get("FG-X1"), get("FG-I6")
    if layers.empty or cost.empty or leak.empty:
        return NOTHING
    ratio = communication(cost)["matrix_over_vector"]
    error = max(layers[name].max() for name in ("matrix", "matrix_in_blocks", "vector"))
    shares = leak[leak["lone"] == "kept"].groupby("form")["cross_client.recovered"].max()
    parts = [error < 1e-9, bool(ratio.between(8, 12).all()), bool(shares["vector"] > shares["matrix"])]
    text = (
        f"layers differ by at most {error:.1e}; Matrix sends {ratio.min():.1f} to {ratio.max():.1f} times as much; "
        f"features recovered: Matrix {100 * shares['matrix']:.0f}%, Vector {100 * shares['vector']:.0f}%"
    )
    return text, _verdict(parts)


def _claim_error(get: Get) -> tuple[str, str]:
    """Theorems 2 to 5 and Lemma 1 hold as printed on all layers tried (corrected forms are judged beside them)."""
    frame = get("FG-Th5")
    if frame.empty:
        return NOTHING
    rows = check_rows(frame, "FG-Th2", "FG-Th3", "FG-Th4", "FG-Th5", "FG-L1")
    rows = rows[~rows["id"].str.endswith(("-control", "-rate"))]
    corrected = rows["statement"].str.contains("corrected")
    printed, right = rows[~corrected], rows[corrected]
    held, mended = (printed["verdict"] == "holds"), (right["verdict"] == "holds")
    text = f"as printed {held.sum()} of {len(held)} bounds hold, as corrected {mended.sum()} of {len(mended)}"
    return text, _verdict(held.tolist())


def _claim_privacy(get: Get) -> tuple[str, str]:
    """Fails if one client recovers a neighbour's features to 1e-8 from its messages alone."""
    frame = get("FG-I6")
    if frame.empty:
        return NOTHING
    worst = frame.loc[frame[frame["lone"] == "kept"].groupby("form")["result.nodes"].idxmax()]
    text = "; ".join(f"{r['form']}: {r['exact']:.0f} of {r['result.nodes']:.0f} nodes in full, largest error "
                     f"{r['error.largest']:.1e}, {100 * r['cross_client.recovered']:.0f}% of cross-client neighbours"
                     for _, r in worst.iterrows())  # fmt: skip
    return text, "fails" if (worst["exact"] > 0).any() else "holds"


CLAIMS = (
    Claim("FG-C4", "fedgat", "One pre-training round suffices; its cost rises near-linearly with clients and is larger "
          "for i.i.d. data.", _claim_cost),
    Claim("FG-C6", "fedgat", "Vector FedGAT: same accuracy, nearly 10x less communication, weaker privacy.",
          _claim_vector),
    Claim("FG-C7", "fedgat", "The error can be made arbitrarily small and its propagation is bounded.", _claim_error),
    Claim("FG-C8", "fedgat", "Nothing about individual node features is revealed.", _claim_privacy),
)  # fmt: skip


# -- the list ---------------------------------------------------------------------------------------------------------

ALGORITHM, ANALYSIS = "fedgat/4-algorithm", "fedgat/5-analysis"
VECTOR, FURTHER = "fedgat/F-vector-fedgat", "fedgat/C-further-experiments"

_CORA = partial(traffic, datasets=("Cora",), clients=CLIENTS)
_CITESEER = partial(traffic, datasets=("CiteSeer",), clients=CLIENTS)
_MANY = partial(traffic, datasets=("Cora",), clients=MANY_CLIENTS)


def _both(profile: str) -> list[Run]:
    return traffic(profile, ("Cora", "CiteSeer"), CLIENTS)


def _edges(profile: str) -> list[Run]:
    return list(dict.fromkeys([*_both(profile), *_MANY(profile)]))


EXHIBITS = [
    Exhibit(id, "fedgat", notebook, title, grid)
    for id, notebook, title, grid in (
        ("FG-A1", ALGORITHM, "Algorithm 1 against the edge form", protocol),
        ("FG-A2", ALGORITHM, "Algorithm 2's first layer against the edge form", protocol),
        ("FG-A4", ALGORITHM, "The protocol's three steps", protocol),
        ("FG-I1", ALGORITHM, "Projections U are idempotent and orthogonal", identities),
        ("FG-I2", ALGORITHM, "E and F from K1, D, K2", identities),
        ("FG-I3", ALGORITHM, "D from M1 and M2", identities),
        ("FG-I4", ANALYSIS, "Chebyshev polynomials are orthogonal", identities),
        ("FG-Th1", ANALYSIS, "What is sent for a node, against its degree", theorems),
        ("FG-Th2", ANALYSIS, "Error of the truncated series", theorems),
        ("FG-Th3", ANALYSIS, "Error of the attention coefficients", theorems),
        ("FG-Th4", ANALYSIS, "Error of the first layer's embeddings", theorems),
        ("FG-Th5", ANALYSIS, "Propagation of the error", theorems),
        ("FG-L1", ANALYSIS, "Linear bound on exp(x) - 1", theorems),
        ("FG-I6", ANALYSIS, "Features recovered from the messages alone", attack),
        ("FG-I6-noise", ANALYSIS, "What noise hides, and what it costs", noise),
        ("FG-A3", VECTOR, "Vector FedGAT against the edge form", protocol),
        ("FG-I5", VECTOR, "E and F from elementwise powers", identities),
        ("FG-F7", VECTOR, "Vector FedGAT's scalars before training, Cora", _CORA),
        ("FG-F8", VECTOR, "Vector FedGAT's scalars before training, CiteSeer", _CITESEER),
        ("FG-X1", VECTOR, "Matrix over Vector FedGAT: scalars before training", _both),
        ("FG-F3a", FURTHER, "Matrix FedGAT's scalars before training, Cora", _CORA),
        ("FG-F3b", FURTHER, "Matrix FedGAT's scalars before training, CiteSeer", _CITESEER),
        ("FG-F4", FURTHER, "Matrix FedGAT's scalars before training, Cora, 20 to 100 clients", _MANY),
        ("FG-X2", FURTHER, "Cross-client edges against clients", _edges),
        ("FG-P1", FURTHER, "Dirichlet partitions for three betas", manifests),
    )
]
