"""List the sizes and statistics of the real graphs, which their stand-ins copy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The statistics that a stand-in copies from a real graph, counted by `fedrepro.data.statistics.summarize`."""

    nodes: int
    edges: int
    """Columns of `edge_index`: both directions of an undirected edge, and self-loops."""
    pairs: int
    """Distinct pairs of different nodes that are joined in either direction."""
    features: int
    classes: tuple[int, ...]
    """Nodes per class; the sizes of the latent communities where `labels` is positive."""
    homophily: float
    """Share of `pairs` whose nodes have the same class."""
    degrees: tuple[int, int, int, int]
    """Degree in `pairs`: quantiles 50, 90, 99, largest."""
    density: float
    """Share of non-zero features; 1 means dense, normally distributed features."""
    split: tuple[int, int, int] | None = None
    """Training, validation, test nodes of the public split."""
    splits: int = 1
    loops: int = 0
    isolated: int = 0
    """Nodes of degree 0."""
    smallest: int = 1
    """Degree that every other node has at least."""
    labels: int = 0
    """Labels per node of a multi-label set; 0 for one class per node."""
    ring: float = 0.0
    """How much classes prefer those beside them: without it a graph of low homophily tells a GCN nothing."""
    flipped: float = 0.05
    """Share of nodes whose class says nothing of their edges and features: it keeps a GCN below 98%."""
    separation: float = 4.0
    """Mean distance between the features of two classes in units of their standard deviation."""


def _graded(nodes: int, classes: int, largest: float) -> tuple[int, ...]:
    """Return class sizes that fall geometrically, where the largest is a share `largest` of all nodes."""
    low, high = 1e-6, 1.0
    for _ in range(60):
        ratio = (low + high) / 2
        share = 1 / sum(ratio**k for k in range(classes))
        low, high = (ratio, high) if share > largest else (low, ratio)
    sizes = [max(1, int(nodes * share * ratio**k)) for k in range(classes)]
    return (sizes[0] + nodes - sum(sizes), *sizes[1:])


# fmt: off
# Measured on the files whose checksums are in checksums.txt.
_MEASURED = {
    "Cora": Shape(
        2708, 10556, 5278, 1433, (351, 217, 418, 818, 426, 298, 180),
        0.8100, (3, 7, 19, 168), 0.01268, (140, 500, 1000),
    ),
    "CiteSeer": Shape(
        3327, 9104, 4552, 3703, (264, 590, 668, 701, 596, 508),
        0.7355, (2, 6, 15, 99), 0.00854, (120, 500, 1000), isolated=48,
    ),
    "PubMed": Shape(
        19717, 88648, 44324, 500, (4103, 7739, 7875),
        0.8024, (2, 12, 35, 171), 0.10022, (60, 500, 1000), separation=3.0,
    ),
    "Chameleon": Shape(
        2277, 36101, 31371, 2325, (456, 460, 453, 521, 387),
        0.2299, (12, 70, 196, 732), 0.00551, (1092, 729, 456), 10, loops=50, ring=2.5, separation=2.0,
    ),
    "Squirrel": Shape(
        5201, 217073, 198353, 2089, (1042, 1040, 1039, 1040, 1040),
        0.2221, (17, 178, 865, 1903), 0.00860, (2496, 1664, 1041), 10, loops=140, ring=2.5, separation=2.0,
    ),
    "Photo": Shape(
        7650, 238162, 119081, 745, (369, 1686, 703, 915, 882, 823, 1941, 331),
        0.8272, (22, 60, 199, 1434), 0.34740, isolated=115,
    ),
    "Computers": Shape(
        13752, 491722, 245861, 767, (436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291),
        0.7772, (22, 73, 244, 2992), 0.34842, isolated=281,
    ),
    "CS": Shape(
        18333, 163788, 81894, 6805,
        (708, 462, 2050, 429, 1394, 2193, 371, 924, 775, 118, 1444, 2033, 420, 4136, 876),
        0.8081, (6, 19, 47, 136), 0.00875,
    ),
    "Physics": Shape(
        34493, 495924, 247962, 8415, (5750, 5045, 17426, 2753, 3519),
        0.9314, (10, 30, 77, 382), 0.00392, flipped=0.03,
    ),
}

# The sizes come from published tables: FedStruct, Table 4; Feras, Table 1; FedSheafHN, Table 7. PyG counts twice as
# many edges as Feras prints for Reddit, and as many for Flickr. So Feras's edges are pairs for Reddit, and both
# directions for Flickr. For PPI they are assumed to be pairs. Degrees, class sizes, density, split sizes and homophily
# (except that of Amazon Ratings) are assumed.
_PUBLISHED = {
    "Amazon Ratings": Shape(
        24492, 186100, 93050, 300, _graded(24492, 5, 0.37),
        0.38, (6, 13, 27, 132), 1.0, (12246, 6123, 6123), 10, smallest=5, ring=2.5, separation=2.0,
    ),
    "ogbn-arxiv": Shape(
        169343, 1166243, 1157799, 128, _graded(169343, 40, 0.16),
        0.655, (6, 26, 120, 13155), 1.0, (90941, 29799, 48603),
    ),
    "PPI": Shape(
        14755, 450540, 225270, 50, _graded(14755, 24, 0.08),
        0.9, (20, 70, 170, 722), 1.0, (9716, 1825, 3214), labels=121,
    ),
    "Flickr": Shape(
        89250, 899756, 449878, 500, _graded(89250, 7, 0.42),
        0.32, (5, 16, 100, 5425), 0.4634, (44625, 22312, 22313), ring=4.0, separation=2.0,
    ),
    "Reddit": Shape(
        232965, 23213838, 11606919, 602, _graded(232965, 41, 0.11),
        0.78, (50, 240, 650, 3000), 1.0, (153932, 23699, 55334),
    ),
}
# fmt: on

SHAPES: dict[str, Shape] = _MEASURED | _PUBLISHED


def whole(name: str) -> str:
    """Return the name of the graph behind a stand-in or an incomplete graph, or else the name itself."""
    return name.removesuffix("~standin").removesuffix("~incomplete")
