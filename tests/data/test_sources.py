"""Names of data sets, files that are missing or wrong, and downloads; every file is written by the test."""

from __future__ import annotations

import hashlib
import pickle
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_files import no_network, ratings, relinked

from fedrepro.data import datasets, formats, sources
from fedrepro.errors import ArgumentError, DataError

# --- names and errors ---------------------------------------------------------------------------------------


def test_unknown_name() -> None:
    """An unknown name is an error that lists what is allowed and suggests the nearest."""
    with pytest.raises(ArgumentError, match=r"'Citeseer'.*Did you mean 'CiteSeer'"):
        datasets.load("Citeseer")
    with pytest.raises(ArgumentError, match=r"'ogbn-arxiv'"):
        datasets.load("arxiv")


def test_missing_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one file of a large set missing the error names that file and where to put it, and nothing is fetched."""
    monkeypatch.setattr("requests.get", no_network)
    folder = home / "data/raw/Flickr/raw"
    folder.mkdir(parents=True)
    for file in ("adj_full.npz", "feats.npy", "role.json"):
        (folder / file).touch()
    with pytest.raises(DataError) as error:
        datasets.load("Flickr")
    assert "class_map.json" in str(error.value) and "role.json" not in str(error.value)
    assert str(folder.parent) in str(error.value) and "--fetch 'Flickr'" in str(error.value)


def test_by_hand_only(home: Path) -> None:
    """A set without a link says so even when asked to be fetched."""
    with pytest.raises(DataError, match=r"PPI is not here: 4 of 4 files.*by hand"):
        datasets.fetch("PPI")


def test_wrong_checksum_before_unpickling(home: Path) -> None:
    """A file with a known checksum that differs is named with both sums, and nothing in it is executed."""
    folder = home / "data/raw/Cora/raw"
    folder.mkdir(parents=True)
    proof = home / "executed"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (proof,))

    for file in sources.SOURCES["Cora"].files:
        (home / "data/raw/Cora" / file).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(
        DataError, match=r"ind.cora.x has the wrong checksum: expected sha256 23cfa55d.* found"
    ) as error:
        datasets.load("Cora")
    assert hashlib.sha256((folder / "ind.cora.x").read_bytes()).hexdigest() in str(error.value)
    assert not proof.exists()


def test_every_file_for_pyg_has_a_checksum() -> None:
    """No file is given to a reader that may unpickle unless its checksum is known."""
    known = sources._published()
    for source in sources.SOURCES.values():
        if source.format not in formats.READERS:
            assert all(f"{source.folder}/{file}" in known for file in source.files), source.folder


# --- downloading --------------------------------------------------------------------------------------------


def test_small_set_is_downloaded_at_first_use(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set of at most 50 MB is fetched into data/raw, loaded, and read from there the next time."""
    address, folder = server
    ratings(folder / "amazon_ratings.npz", np.random.default_rng(0))
    relinked(monkeypatch, "Amazon Ratings", urls=(f"{address}/amazon_ratings.npz",))
    assert datasets.load("Amazon Ratings").num_nodes == 12
    monkeypatch.setattr("requests.get", no_network)
    assert datasets.load("Amazon Ratings").num_nodes == 12
    assert [file.name for file in (home / "data/raw/amazon_ratings/raw").iterdir()] == ["amazon_ratings.npz"]


def test_download_with_wrong_checksum_leaves_nothing(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download whose checksum is not the known one is an error and leaves no file."""
    address, folder = server
    (folder / "photo.npz").write_bytes(b"not the graph")
    relinked(monkeypatch, "Photo", urls=(f"{address}/photo.npz",))
    with pytest.raises(DataError, match=r"amazon_electronics_photo.npz.* wrong checksum"):
        datasets.load("Photo")
    assert list((home / "data/raw/Photo/raw").iterdir()) == []


def test_damaged_file_is_replaced_on_request(
    home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` downloads a file again if its checksum is wrong, and no file that is already here and right."""
    address, folder = server
    files = {"raw/a": b"first", "raw/b": b"second"}
    for file, content in files.items():
        (folder / Path(file).name).write_bytes(content)
    known = {f"Photo/{file}": hashlib.sha256(content).hexdigest() for file, content in files.items()}
    monkeypatch.setattr(sources, "_published", lambda: known)
    relinked(monkeypatch, "Photo", files=tuple(files), urls=(f"{address}/a", f"{address}/b"))
    here = home / "data/raw/Photo/raw"
    here.mkdir(parents=True)
    (here / "a").write_bytes(b"torn")
    (here / "b").write_bytes(b"second")
    (folder / "b").unlink()
    assert sources.fetch("Photo") == here.parent
    assert {file.name: file.read_bytes() for file in here.iterdir()} == {"a": b"first", "b": b"second"}


def test_download_larger_than_announced(home: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unasked download stops at the limit."""
    address, folder = server
    (folder / "big.npz").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(sources, "ASK_ABOVE", 1)
    relinked(monkeypatch, "Amazon Ratings", urls=(f"{address}/big.npz",), megabytes=0.5)
    with pytest.raises(DataError, match=r"larger than 1 MB"):
        datasets.load("Amazon Ratings")


def test_unreachable_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that does not answer is an error with the address, the reason and where to put the file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    relinked(monkeypatch, "Amazon Ratings", urls=(f"http://127.0.0.1:{port}/amazon_ratings.npz",))
    with pytest.raises(DataError, match=rf"{port}.*could not be downloaded.*refused.*put the file at"):
        datasets.load("Amazon Ratings")


def test_a_folder_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that has no place to go is an error of the data, with the address and the reason."""
    (home / "data").touch()
    monkeypatch.setattr("requests.get", no_network)
    relinked(monkeypatch, "Amazon Ratings", urls=("http://host/amazon_ratings.npz",))
    with pytest.raises(DataError, match=r"^http://host/\S+ could not be downloaded: .*Not a directory"):
        datasets.load("Amazon Ratings")


def test_silent_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that accepts and then says nothing is given up after the time limit."""
    monkeypatch.setattr(sources, "TIMEOUT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x.npz"
        relinked(monkeypatch, "Amazon Ratings", urls=(address,))
        with pytest.raises(DataError, match=r"timed out"):
            datasets.load("Amazon Ratings")
    assert sources.TIMEOUT_SECONDS < 5 <= 5.0
