"""Replicate five papers on federated learning over graphs, notebook by notebook.

    import fedrepro as fr

    nb = fr.begin("fedgat/6-experiments", profile="quick", device="auto", seeds=0, engine="local")
    runs = fr.sweep(task="train", paper="fedgat", method=["FedAvg", "FedGAT"], dataset="Cora", split="public",
                    partition="metis", clients=10, seed=range(3), options={"model": "GAT", "rounds": 5})
    frame = nb.execute(runs)

The names below are imported when first used, so `import fedrepro` costs next to nothing and loads no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.3.0"

# Each public name is loaded from its module at its first use.
_NAMES = {
    "ArgumentError": "errors",
    "DataError": "errors",
    "DivergedError": "errors",
    "Federation": "engine.federation",
    "FedreproError": "errors",
    "Run": "runs.run",
    "StoreError": "errors",
    "begin": "reporting.session",
    "execute": "runs.execute",
    "graph": "data.files",
    "load": "data.datasets",
    "sweep": "runs.run",
}
_MODULES = {
    "across": "across",
    "compare": "reporting.compare",
    "datasets": "data.datasets",
    "exhibits": "reporting.exhibits",
    "figures": "reporting.figures",
    "nn": "engine.nn",
    "notebook": "reporting.notebook",
    "partition": "data.partition",
    "paths": "paths",
    "registry": "registry",
    "report": "reporting.report",
    "store": "runs.store",
    "synthetic": "data.synthetic",
    "traffic": "engine.traffic",
    "training": "engine.training",
}

__all__ = sorted([*_NAMES, *_MODULES])


def sources() -> dict[str, tuple[int, int, int]]:
    """Return inode, size and time of each source file of the package, by its path."""
    walked = os.walk(os.path.dirname(os.path.abspath(__file__)))
    files = [os.path.join(place, name) for place, _, names in walked for name in names if name.endswith(".py")]
    return {file: ((stat := os.stat(file)).st_ino, stat.st_size, stat.st_mtime_ns) for file in files}


# All modules are imported after this, so that one whose file is still the same holds what is in the file.
SOURCES = sources()


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"fedrepro.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"fedrepro.{_MODULES[name]}")
    raise AttributeError(f"module 'fedrepro' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
