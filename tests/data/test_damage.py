"""Files that are changed, cut, missing, too large or not readable: nothing runs, nothing is trusted, all is named."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from notebooks_written import write
from raw_files import REAL, needs_real
from torch_geometric.data import Data

from fedrepro import cli
from fedrepro.data import copies, datasets, sources
from fedrepro.errors import DamagedError, DataError
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

RATINGS = "data/raw/amazon_ratings/raw/amazon_ratings.npz"


@pytest.fixture
def home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout without raw graphs, and no network."""
    for name, source in sources.SOURCES.items():
        if source.urls:
            nowhere = tuple("http://127.0.0.1:9/" + url.rpartition("/")[2] for url in source.urls)
            monkeypatch.setitem(sources.SOURCES, name, replace(source, urls=nowhere))
    return home


@pytest.fixture
def cora(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of raw graphs that may be written, with Cora in it; `FEDREPRO_DATA` names it."""
    shutil.copytree(Path(REAL or "") / "Cora", home / "shared" / "Cora")
    for file in (home / "shared").rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    monkeypatch.setenv("FEDREPRO_DATA", str(home / "shared"))
    return home / "shared" / "Cora"


def same(one: Data, other: Data) -> bool:
    return all(torch.equal(one[key], other[key]) for key in ("y", "edge_index", "public")) and torch.equal(
        one.x.to_dense(), other.x.to_dense()
    )


def ratings(file: Path, nodes: int = 12) -> None:
    """A small graph in the layout of Amazon Ratings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = np.arange(nodes) % 3
    masks = {f"{name}_masks": (part == i)[None] for i, name in enumerate(("train", "val", "test"))}
    edges = np.array([[0, 1], [1, 2], [5, 3]])
    x = np.ones((nodes, 4), np.float32)
    np.savez_compressed(file, node_features=x, node_labels=np.arange(nodes) % 4, edges=edges, **masks)


class Code:
    """A pickle that makes a file when it is read."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.proof,)


# --- between checksum and use -------------------------------------------------------------------------------


@needs_real
@pytest.mark.parametrize("moment", ["before the copy", "after the copy"])
def test_a_file_swapped_after_its_check_is_not_read(
    cora: Path, home: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Whoever replaces a raw file once it has been hashed gets no code run: the copy that was hashed is read."""
    before = moment == "before the copy"
    swapped, real = cora / "raw/ind.cora.x", sources.check if before else sources.verify

    def and_swap(*given: Any) -> Any:
        found = real(*given)
        swapped.write_bytes(pickle.dumps(Code(home / "executed")))
        return found

    monkeypatch.setattr(sources, "check" if before else "verify", and_swap)
    if before:
        with pytest.raises(DamagedError, match=r"ind\.cora\.x was changed while it was read"):
            datasets.load("Cora")
    else:
        assert datasets.load("Cora").num_nodes == 2708
    assert not (home / "executed").exists()


@needs_real
def test_private_copies_are_nobody_elses_and_do_not_stay(
    cora: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the copies is closed to others and gone after loading, also if loading fails."""
    scratch = home / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    folder = copies.private(cora)
    assert folder.parent.stat().st_mode & 0o077 == 0 and f"{folder}" == str(cora)
    del folder
    assert list(scratch.iterdir()) == []
    datasets.load("Cora")
    assert list(scratch.iterdir()) == []
    monkeypatch.setattr("fedrepro.data.formats.read_pyg", lambda *_, **__: 1 / 0)
    shutil.rmtree(home / "data/processed")
    with pytest.raises(ZeroDivisionError):
        datasets.load("Cora")
    assert list(scratch.iterdir()) == []


# --- copies of graphs in data/processed ---------------------------------------------------------------------


@needs_real
def test_a_damaged_copy_is_made_again(cora: Path, home: Path) -> None:
    """Whatever bit of a processed graph is flipped, the graph is that of the raw files, and the copy sound again."""
    first = datasets.load("Cora")
    (copy,) = (home / "data/processed").glob("*.npz")
    sound = copy.read_bytes()
    # Bit 1 of byte 63 gave labels 65536, bit 6 a TokenError; then a name, a shape, data and the zip's directory.
    for byte, bit in ((63, 1), (63, 6), (30, 0), (120, 3), (len(sound) // 2, 5), (len(sound) - 30, 2)):
        damaged = bytearray(sound)
        damaged[byte] ^= 1 << bit
        copy.write_bytes(damaged)
        assert same(datasets.load("Cora"), first) and copy.read_bytes() == sound, (byte, bit)
    copy.with_name(f"{copy.name}.sha256").write_text("nonsense\n")
    assert same(datasets.load("Cora"), first) and copies.is_sound(copy)


@needs_real
def test_a_copy_without_checksum_is_not_believed(cora: Path, home: Path) -> None:
    """Another graph under the name of a copy, without its checksum, is not served."""
    first = datasets.load("Cora")
    (copy,) = (home / "data/processed").glob("*.npz")
    with np.load(copy) as arrays:
        changed = dict(arrays) | {"y": np.zeros_like(arrays["y"])}
    np.savez(copy, **changed)
    copy.with_name(f"{copy.name}.sha256").unlink()
    assert same(datasets.load("Cora"), first)


@needs_real
def test_a_damaged_copy_that_cannot_be_removed_is_left_aside(
    cora: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a read-only checkout the raw files are read in place of a damaged copy."""
    first = datasets.load("Cora")
    (copy,) = (home / "data/processed").glob("*.npz")
    damaged = bytearray(copy.read_bytes())
    damaged[63] ^= 2
    copy.write_bytes(damaged)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr("fedrepro.paths.replace_file", refuse)
    assert same(datasets.load("Cora"), first) and copy.read_bytes() == damaged


# --- files without a published checksum ---------------------------------------------------------------------


def test_half_a_file_is_not_recorded(home: Path) -> None:
    """A file that cannot be read leaves no checksum behind, and the whole file is then read."""
    file = home / RATINGS
    ratings(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=r"amazon_ratings\.npz is no whole npz file of Amazon Ratings"):
        datasets.load("Amazon Ratings")
    assert not (file.parents[1] / "SHA256SUMS").exists()
    file.write_bytes(whole)
    assert datasets.load("Amazon Ratings").num_nodes == 12
    assert (file.parents[1] / "SHA256SUMS").read_text() == f"{copies.sha256(file)}  raw/amazon_ratings.npz\n"


def test_checksums_that_were_removed_are_recorded_again(home: Path) -> None:
    """With a sound copy of the graph at hand the files have been read, so their checksums are recorded at once."""
    ratings(home / RATINGS)
    datasets.load("Amazon Ratings")
    sums = (home / RATINGS).parents[1] / "SHA256SUMS"
    sums.unlink()
    datasets.load("Amazon Ratings")
    assert sums.is_file()
    sums.write_bytes(b"\xff\xfenonsense")
    with pytest.raises(DamagedError, match=r"SHA256SUMS holds no checksums\. Remove it"):
        datasets.load("Amazon Ratings")


def bomb(file: Path) -> None:
    """Two hundred megabytes of zeros in less than one, as an array of an npz."""
    header = np.lib.format.magic(1, 0)
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (200000000,), }"
    header += (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(zipfile.ZipInfo("node_features.npy"), "w", force_zip64=True) as member,
    ):
        member.write(header)
        for _ in range(20):
            member.write(bytes(10_000_000))


def claim(file: Path) -> None:
    """An array that claims a trillion entries and has none."""
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("node_features.npy", header)


@pytest.mark.parametrize("write_file", [bomb, claim])
def test_a_file_that_unpacks_to_too_much_is_refused(
    write_file: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes in the headers are enough to refuse an npz; nothing of it is unpacked."""
    file = home / RATINGS
    file.parent.mkdir(parents=True)
    write_file(file)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(DamagedError, match=r"amazon_ratings\.npz unpacks to \S+ MB, but Amazon Ratings has at most"):
        datasets.load("Amazon Ratings")


def test_sizes_of_other_formats(tmp_path: Path) -> None:
    """The declared size of an npy and a gz is read from the file; a damaged header leaves the size as it is."""
    import gzip

    np.save(tmp_path / "a.npy", np.zeros((7, 3)))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(bytes(5000)))
    assert copies.unpacked(tmp_path / "a.npy") == (tmp_path / "a.npy").stat().st_size
    assert copies.unpacked(tmp_path / "a.csv.gz") == 5000
    content = (tmp_path / "a.npy").read_bytes().replace(b"(7, 3)", b"(7, 9)")
    (tmp_path / "b.npy").write_bytes(content)
    assert copies.unpacked(tmp_path / "b.npy") == 7 * 9 * 8
    (tmp_path / "c.npy").write_bytes(b"\x93NUMPY\x01\x00nonsense")
    assert copies.unpacked(tmp_path / "c.npy") == 16


# --- what is missing or cannot be read ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nothing", "a file"])
def test_a_folder_of_data_that_is_none(kind: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says first that FEDREPRO_DATA leads nowhere, for a set to download and for one too large."""
    folder = home / "elsewhere"
    if kind == "a file":
        folder.touch()
    monkeypatch.setenv("FEDREPRO_DATA", str(folder))
    for name in ("Cora", "Reddit"):
        with pytest.raises(DataError, match=rf"FEDREPRO_DATA={folder} is no folder, and"):
            datasets.load(name)


@needs_real
def test_one_missing_file_is_named(cora: Path) -> None:
    """With one file missing in FEDREPRO_DATA the message names the variable and the file."""
    (cora / "raw/ind.cora.ty").unlink()
    with pytest.raises(DataError, match=r"FEDREPRO_DATA=\S+ lacks Cora/raw/ind\.cora\.ty, and http.*could not be"):
        datasets.load("Cora")


@needs_real
def test_a_file_that_may_not_be_read(cora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission to read is named with the reason."""
    real = Path.open

    def refuse(path: Path, *given: Any, **more: Any) -> Any:
        if path.name == "ind.cora.tx":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DamagedError, match=r"ind\.cora\.tx cannot be read: Permission denied"):
        datasets.load("Cora")


@needs_real
def test_damaged_data_is_status_1(
    cora: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`data --fetch` names the checksum of a cut file in FEDREPRO_DATA, with status 1; it is not replaced there."""
    file = cora / "raw/ind.cora.x"
    file.write_bytes(file.read_bytes()[:1000])
    assert cli.main(["data", "--fetch", "Cora"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "ind.cora.x has the wrong checksum" in told.err and "Replace the file." in told.err
    assert file.stat().st_size == 1000


@needs_real
def test_a_damaged_download_is_replaced(home: Path, cora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In data/raw a damaged file is downloaded again by `fetch`, and `load` says so; sound ones are not."""
    monkeypatch.delenv("FEDREPRO_DATA")
    shutil.copytree(cora, home / "data/raw/Cora")
    here = home / "data/raw/Cora/raw"
    files = tuple(file.removeprefix("raw/") for file in sources.SOURCES["Cora"].files)
    urls = tuple(f"http://127.0.0.1:9/{file}" for file in files)
    monkeypatch.setitem(sources.SOURCES, "Cora", replace(sources.SOURCES["Cora"], urls=urls))
    asked: list[str] = []

    def download(self: Any, url: str, output: str, *_: Any) -> None:
        asked.append(url.rpartition("/")[2])
        shutil.copyfile(cora / "raw" / asked[-1], output)

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", download)
    (here / "ind.cora.x").write_bytes(b"cut")
    with pytest.raises(DamagedError, match=r"`fedrepro data --fetch 'Cora'` replaces the file"):
        datasets.load("Cora")
    assert datasets.fetch("Cora") == here.parent and asked == ["ind.cora.x"]
    assert datasets.load("Cora").num_nodes == 2708


def test_a_half_download_without_checksum_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fetch` replaces a file without a known checksum that cannot be read, and keeps the old file next to it."""
    file = home / RATINGS
    ratings(home / "whole.npz")
    file.parent.mkdir(parents=True)
    file.write_bytes((home / "whole.npz").read_bytes()[:300])
    download = lambda self, url, to, *_: shutil.copyfile(home / "whole.npz", to)  # noqa: E731
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", download)
    datasets.fetch("Amazon Ratings")
    assert datasets.load("Amazon Ratings").num_nodes == 12
    assert (file.with_name("amazon_ratings.npz.damaged")).stat().st_size == 300


@needs_real
def test_a_sweep_on_damaged_data_is_status_1(
    cora: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a budget the damaged file is named with its checksum, and the runs of other graphs are computed."""
    write(home / "notebooks", "engine/1-a")
    runs = [Run("check", "p", "graph statistics", dataset=name) for name in ("Cora", "Cora~standin")]
    exhibit = SimpleNamespace(notebook="engine/1-a", runs=lambda *_: runs)
    monkeypatch.setattr("fedrepro.reporting.exhibits.registered", lambda: {"EN-1": exhibit})
    (cora / "raw/ind.cora.x").write_bytes(b"cut")
    assert cli.main(["run", "engine", "--budget", "1", "--device", "cpu"]) == 1
    told = capsys.readouterr()
    assert "1 of 2 missing runs computed" in told.out
    assert told.err.count("ind.cora.x has the wrong checksum: expected sha256") == 1
    assert [run.key in Store() for run in runs] == [False, True]
