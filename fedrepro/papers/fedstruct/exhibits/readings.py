"""List the readings of what FedStruct's paper leaves open: their changes of a run, and the runs that compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from fedrepro.papers.fedstruct.exhibits.cells import (
    CENTRAL,
    CLIENTS,
    FED_STAR,
    HOP2VEC,
    KNOWN,
    OPEN_SEED,
    T6,
    WIDTH,
    Cell,
    cell,
)
from fedrepro.papers.fedstruct.exhibits.settings import PARTITIONS, SETTINGS, TABLES, Options

READ_ON = ("Cora", "CiteSeer", "Chameleon")
REPETITIONS = 3
# Readings of Tables 6 and 8 that were found late run once on the larger graphs, since the tables have few seeds there.
LATE_ON = {**dict.fromkeys(READ_ON, REPETITIONS), "PubMed": 1, "Photo": 1}

MAIN = "as in the tables"
CODE_NAME = "the public code's epochs, rate and depth"
READINGS, CODE, COMBINED = (TABLES[name] for name in ("readings", "code", "combined"))
# Row, reading and its options for each setting that validation nodes decide, with a seed that no table shows.
OPEN = [
    (row, reading, more) for one in TABLES["open"] for row in one["rows"] for reading, more in one["readings"].items()
]

# Readings of Tables 6 and 8 that were found in the public code, or guessed, after our numbers had been seen. Each has
# the rows that it changes, and the options that it changes of a run.
CODE_FEDGCN, LOCAL_DEGREES, SLACK = "the code's FedGCN", "degrees of the subgraph", "the code's slack"
WHOLE_INPUT = "no dropout of the input"  # as in FedGCN's own code (FS-Q18)
# Readings of FedPub: penalties without gradient, as its code has them (FS-M1), and these with dropout of the input. The
# tables had both before 29 November 2026 (FS-D).
CODED_PENALTIES, DROPPED_INPUT = "penalties as coded", "dropout of the input"
PUB: dict[str, Options] = {
    CODED_PENALTIES: {"penalties": "coded"},
    DROPPED_INPUT: {"penalties": "coded", "input_dropout": None},
}
FEW_POWERS = "powers up to L_s"  # of Fed*, as in Appendix A (FS-Q16)
NO_RELU, RAW_ORBITS, NEITHER = "no last ReLU", "73 raw orbits", "no last ReLU and 73 raw orbits"
UNTRAINED, BARE_UNTRAINED = "S untrained", "S untrained and no last ReLU"
_KNOWN: Options = {"prune": None, "graph": None}  # the method as coded has no such options
_RAW: Options = {"structure": "GDV-73", "counts": "raw"}
CODED: dict[str, tuple[tuple[str, ...], Options]] = {
    NO_RELU: (tuple(row for row in KNOWN if "(GNN" in row), {"last": "linear"}),
    RAW_ORBITS: (("FedStruct (DGCN+GDV)", "FedStruct (GNN+GDV)"), {**_RAW, "last": "relu"}),
    NEITHER: (("FedStruct (GNN+GDV)",), {**_RAW, "last": "linear"}),
    UNTRAINED: (("FedStruct (GNN+H2V)",), {"trained": False, "last": "relu"}),
    BARE_UNTRAINED: (("FedStruct (GNN+H2V)",), {"trained": False, "last": "linear"}),
}
# Readings that score the tables' runs at another point: before local training instead of after it, or the other way
# round (FS-M), or at the round of best validation accuracy instead of the last one (FS-Q10).
BEST = "the best round"
AFTER, FEDGCN_AFTER, BEFORE = "after local training", "the code's FedGCN after local training", "before local training"
PARTS = {"louvain": "louvain(slack=20)", "kmeans": "kmeans(slack=20)"}  # of the public code, which cuts at n/K + 20

DEEP = {"GraphSAGE": CENTRAL, "the same without neighbours (MLP)": "Central MLP"}


def read(
    row: str, reading: str, dataset: str, partition: str, seeds: int | Iterable[int], clients: int = 10, **more: Any
) -> list[Cell]:
    """Return the runs of one cell under a reading, `<row>, <reading>`; the arguments are those of `cells.cell`."""
    return cell(row, dataset, partition, seeds, clients, name=f"{row}, {reading}", **more)


def readings() -> list[Cell]:
    """Return FedStruct (H2V) under each reading, one departure from the tables at a time (FS-T2-readings)."""
    asked = [(dataset, name, more) for dataset in READ_ON for name, more in READINGS.items()]
    asked += [(dataset, CODE_NAME, more) for dataset, more in CODE.items()]
    return [each for d, name, more in asked for each in cell(HOP2VEC, d, "random", REPETITIONS, name=name, **more)]


def open_choices() -> list[Cell]:
    """Return the readings of each open setting, under the row and the reading (FS-M1).

    Besides those of the baselines there are the public code's structure branch and its orbits, each next to the
    tables'. They were found late, so the tables keep theirs whatever validation says (FS-R1, FS-R2).
    """
    graphs, late = ("Cora", "Chameleon"), (NO_RELU, RAW_ORBITS)
    cells = []
    for dataset, (row, reading, more) in product(graphs, OPEN):
        cells += read(row, reading, dataset, "random", [OPEN_SEED], **more)
    for dataset, row in product(graphs, dict.fromkeys(row for reading in late for row in CODED[reading][0])):
        cells += read(row, MAIN, dataset, "random", [OPEN_SEED])
    return cells + coded(("random",), {dataset: [OPEN_SEED] for dataset in graphs}, late)


def combined() -> list[Cell]:
    """Return embeddings joined by a layer (Eq. 51) instead of added logits, and 73 orbits (FS-T8-readings)."""
    cells = []
    for dataset, backbone, (kind, choices) in product(("Cora", "Chameleon"), ("DGCN", "GNN"), COMBINED.items()):
        for name, more in choices.items():
            cells += read(f"FedStruct ({backbone}+{kind})", name, dataset, "random", REPETITIONS, **more)
    return cells


def coded(
    partitions: Sequence[str] = PARTITIONS,
    seeds: Mapping[str, Any] = LATE_ON,
    asked: Iterable[str] = tuple(CODED),
) -> list[Cell]:
    """Return FedStruct with a known graph as the public code computes it, in some readings (FS-T8-readings).

    The 73 orbits are counted on the small graphs only. Their cost on PubMed and Photo was not measured.
    """
    cells = []
    for dataset, reading in product(seeds, asked):
        rows, more = CODED[reading]
        if "counts" in more and dataset not in READ_ON:
            continue
        for row, p in product(rows, partitions):
            cells += read(row, reading, dataset, p, seeds[dataset], method="FedStruct (as coded)", **_KNOWN, **more)
    return cells


def known() -> list[Cell]:
    """Return every reading of Table 8: `combined`, `coded`, and the code's slack (FS-T8-readings)."""
    return [*combined(), *coded(), *_slack(KNOWN)]


def further() -> list[Cell]:
    """Return readings of rows of Table 6, of Fed*'s powers, and the code's slack on all rows (FS-T6-readings)."""
    cells = []
    for dataset, seeds in LATE_ON.items():
        for p in PARTITIONS:
            for row in ("FedGCN-1hop", "FedGCN-2hop"):
                cells += cell(f"{row} (code)", dataset, p, seeds, name=f"{row}, {CODE_FEDGCN}")
                cells += read(row, WHOLE_INPUT, dataset, p, seeds, input_dropout=0.0)
            cells += read("FedGCN-1hop", LOCAL_DEGREES, dataset, p, seeds, method="FedGCN (local degrees)")
            cells += read(FED_STAR, FEW_POWERS, dataset, p, seeds, walk=SETTINGS[dataset].structure_depth)
        columns = [*((p, 10) for p in PARTITIONS), *(("random", count) for count in CLIENTS if count != 10)]
        for (name, more), (p, clients) in product(PUB.items(), columns):
            cells += read("FedPub", name, dataset, p, seeds, clients, **more)
    return [*cells, *_slack(row for row in T6 if not row.startswith("Central"))]


def _slack(rows: Iterable[str]) -> list[Cell]:
    """Return some rows under partitions whose parts may have 20 nodes more than n/K, as in the public code (FS-Q14)."""
    columns = product(rows, LATE_ON, PARTS.values())
    return [each for row, dataset, p in columns for each in read(row, SLACK, dataset, p, LATE_ON[dataset])]


def mended() -> list[Cell]:
    """Return mending with the true neighbours, and with generators of two widths (FS-Q5)."""
    rows = ("FedSage+", "FedSage+ ideal", "FedGCN-1hop (code)", HOP2VEC, CENTRAL)
    asked = [(row, dataset, p) for dataset in READ_ON for p in PARTITIONS for row in rows]
    asked += [("FedSage+ (2048)", "Cora", p) for p in PARTITIONS]
    return [each for row, dataset, p in asked for each in cell(row, dataset, p, REPETITIONS)]


def deep() -> list[Cell]:
    """Return the runs that look for the cause of GraphSAGE's fall with depth in Figure 4(b) (FS-F4b-training).

    Networks have two and 20 layers, the tables' dropout and none, the tables' epochs and five times as many. As many
    linear layers see no neighbour, and so cannot smooth anything over. All are central, on Cora.
    """
    cells = []
    for name, depth, dropout, rounds in product(DEEP, (2, 20), (0.7, 0.0), (40, 200)):
        more: Options = {"stack": (WIDTH,) * depth, "dropout": dropout, "rounds": rounds}
        cells += cell(DEEP[name], "Cora", "single", [OPEN_SEED], name=name, **more)
    return cells
