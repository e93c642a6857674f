"""Provide the fixtures of the tests of data sets: an empty checkout, a small graph of one's own, a web server."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from fedrepro import paths
from fedrepro.data import datasets


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout without raw graphs."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA", raising=False)
    return tmp_path


@pytest.fixture
def graph() -> Data:
    """Six nodes, a repeated edge, a self-loop, one edge in both directions, two components; column 3 is constant."""
    x = torch.tensor([[1, 0, 2, 1], [0, 0, 0, 1], [3, 1, 0, 1], [0, 2, 0, 1], [0, 0, 0, 1], [5, 0, 0, 1]]).float()
    edges = torch.tensor([[1, 0, 0, 2, 3, 4, 0], [0, 1, 2, 2, 2, 5, 2]])
    masks = torch.eye(6, dtype=torch.bool)
    data = Data(x=x, y=torch.tensor([0, 1, 0, 0, 1, 1]), edge_index=edges)
    data.train_mask, data.val_mask, data.test_mask = masks[0] | masks[1] | masks[2], masks[3], masks[4] | masks[5]
    return data


@pytest.fixture
def loaded(graph: Data, monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr(datasets, "_own", {})
    datasets.register("tiny", lambda: graph)
    return datasets.load("tiny")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A web server on this machine: its address and the folder it serves."""
    folder = tmp_path_factory.mktemp("served")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()
