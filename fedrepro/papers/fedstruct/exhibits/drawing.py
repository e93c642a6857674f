"""Give a method one colour in all of FedStruct's figures, and partitions the names that the paper has for them."""

from __future__ import annotations

import pandas as pd

from fedrepro.papers.fedstruct.exhibits.cells import CENTRAL, HOP2VEC

# The argument `order` of all figures that draw methods. There are eight colours, so a method and the eighth after
# it have one colour, and no figure draws both.
COLOURED = (
    *(CENTRAL, "FedSGD GNN", "FedSage+", "FedPub"),
    *(HOP2VEC, "Local GNN", "FedStruct (Deg)", "FedStruct (Fed*)"),
    *("", "", "FedStruct (H2V s)", "FedStruct (DGCN+N2V)"),
    *("FedStruct (DGCN+H2V)", "FedGCN-2hop", "FedStruct (GNN+H2V)", "FedStruct (GNN+N2V)"),
)
PARTITIONS = {"louvain": "Louvain", "kmeans": "K-means"}


def with_partition_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows to draw, whose partitions have the names that the paper gives them."""
    return rows.assign(partition=rows["partition"].replace(PARTITIONS))
