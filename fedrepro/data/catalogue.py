"""Say which real graphs are here, and where the others come from. Nothing here needs torch."""

from __future__ import annotations

from typing import Any

from fedrepro.data import sources
from fedrepro.data.shapes import SHAPES, whole


def rows() -> list[dict[str, Any]]:
    """Return one row a real data set, whole or incomplete, with the columns that `datasets.describe` lists."""
    table = []
    for name, source in (sources.SOURCES | sources.INCOMPLETE).items():
        shape, folder = SHAPES[whole(name)], sources.locate(source)
        download = "at first use" if source.megabytes <= sources.ASK_ABOVE else "on request"
        table.append(
            {
                "name": name,
                "here": folder is not None,
                "folder": str(folder or ""),
                "download_MB": source.megabytes,
                "download": download if source.urls else "by hand",
                "licence": source.licence,
                "origin": source.origin,
                "nodes": shape.nodes,
                "directed_edges": shape.edges,
                "undirected_edges": shape.pairs,
                "features": shape.features,
                "classes": shape.labels or len(shape.classes),
                "lacks": source.lacks,
                **source.counts,
            }
        )
    return table
