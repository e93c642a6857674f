"""Tiny raw files in the layouts of their publishers, and what tests of data sets share."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedrepro.data import sources

REAL = os.environ.get("FEDREPRO_DATA")  # an empty one is none, as in `paths.raw_folders`
needs_real = pytest.mark.skipif(not REAL, reason="the real files are not read: FEDREPRO_DATA is unset")


def dense(x: torch.Tensor) -> np.ndarray[Any, Any]:
    return x.to_dense().numpy()


def no_network(*_: object, **__: object) -> None:
    raise AssertionError("the network was used")


def ratings(file: Any, rng: np.random.Generator) -> dict[str, Any]:
    """A tiny graph in the layout of the heterophilous graphs, written to `file`."""
    parts = rng.permuted(np.tile(np.arange(12) % 3, (10, 1)), axis=1)
    content = {
        "node_features": rng.standard_normal((12, 5)).astype(np.float32),
        "node_labels": np.arange(12) % 4,
        "edges": np.array([[0, 1], [1, 2], [5, 3], [11, 0]]),
        **{f"{part}_masks": parts == i for i, part in enumerate(("train", "val", "test"))},
    }
    np.savez(file, **content)
    return content


def relinked(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    monkeypatch.setitem(sources.SOURCES, name, replace(sources.SOURCES[name], **changes))


def arxiv(folder: Path) -> None:
    """A tiny graph in the layout of ogb's zip: five nodes, edges listed one way, split by time."""
    tables = {
        "raw/edge": "0,1\n3,2\n4,0\n0,1\n",
        "raw/node-feat": "".join(f"{i}.5,-{i},0.25\n" for i in range(5)),
        "raw/node-label": "3\n0\n1\n2\n0\n",
        "raw/node_year": "2013\n" * 5,
        "split/time/train": "0\n4\n",
        "split/time/valid": "2\n",
        "split/time/test": "1\n3\n",
    }
    for name, text in tables.items():
        file = folder / f"{name}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))


def graphsaint(folder: Path, labels: list[Any]) -> sp.csr_matrix:
    """A tiny graph in GraphSAINT's format, all five files."""
    folder.mkdir(parents=True)
    pairs = np.array([[0, 1], [1, 2], [3, 4], [0, 4]])
    row, col = np.concatenate([pairs, pairs[:, ::-1]]).T
    adjacency = sp.csr_matrix((np.ones(8, bool), (row, col)), (5, 5))
    sp.save_npz(folder / "adj_full.npz", adjacency)
    training = sp.diags_array(np.array([1.0, 1.0, 0.0, 0.0, 1.0]))
    sp.save_npz(folder / "adj_train.npz", sp.csr_matrix(training @ adjacency @ training))
    np.save(folder / "feats.npy", np.arange(15.0).reshape(5, 3))
    (folder / "class_map.json").write_text(json.dumps({str(i): labels[i] for i in (4, 2, 0, 1, 3)}))
    (folder / "role.json").write_text(json.dumps({"tr": [4, 0, 1], "va": [2], "te": [3]}))
    return adjacency
