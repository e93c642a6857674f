"""Find, verify and download the files of real graphs.

A file with a known checksum is verified before anything reads it. If no checksum is known, the hash is recorded at
first use, in `SHA256SUMS` of the data set's folder in `data/raw`, and verified from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pooch

from fedrepro import paths
from fedrepro.errors import DataError

ASK_ABOVE = 50
"""Megabytes above which a data set is downloaded only on request (`fedrepro data --fetch NAME`)."""

TIMEOUT_SECONDS = 5.0
"""Longest wait for a host to connect or to send the next bytes."""


@dataclass(frozen=True)
class Source:
    """The origin of a data set, its files, and the way to read them."""

    folder: str
    """Name of its folder among the raw graphs."""
    files: tuple[str, ...]
    """Paths relative to that folder."""
    format: str
    """The `kind` of `formats.read`."""
    megabytes: float
    """Approximate size of the download."""
    licence: str
    """Licence as stated at the origin."""
    origin: str
    """Page of the publishers."""
    urls: tuple[str, ...] = ()
    """One URL per file, or that of a zip with all files; empty if there is no link."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the PyG class that reads the files."""


_PLANETOID = "https://github.com/kimiyoung/planetoid"
_GEOM_GCN = "https://github.com/graphdml-uiuc-jlu/geom-gcn"
_SHCHUR = "https://github.com/shchur/gnn-benchmark"
_HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs"
_OGB = "https://ogb.stanford.edu/docs/nodeprop/"
_GRAPHSAINT = "https://github.com/GraphSAINT/GraphSAINT"
_REPOSITORY = "MIT (repository)"


def _planetoid(name: str, megabytes: float) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = [f"ind.{name.lower()}.{part}" for part in parts]
    urls = tuple(f"{_PLANETOID}/raw/master/data/{file}" for file in files)
    raw = tuple(f"raw/{file}" for file in files)
    return Source(name, raw, "Planetoid", megabytes, _REPOSITORY, _PLANETOID, urls, {"name": name})


def _wikipedia(name: str, megabytes: float) -> Source:
    tables = ["out1_node_feature_label.txt", "out1_graph_edges.txt"]
    splits = [f"{name}_split_0.6_0.2_{i}.npz" for i in range(10)]
    base = f"{_GEOM_GCN}/raw/f1fc0d14b3b019c562737240d06ec83b07d16a8f"
    urls = [f"{base}/new_data/{name}/{file}" for file in tables] + [f"{base}/splits/{file}" for file in splits]
    files = tuple(f"geom_gcn/raw/{file}" for file in tables + splits)
    arguments = {"name": name, "geom_gcn_preprocess": True}
    return Source(name, files, "WikipediaNetwork", megabytes, "none stated", _GEOM_GCN, tuple(urls), arguments)


def _shchur(kind: str, name: str, file: str, megabytes: float) -> Source:
    url = f"{_SHCHUR}/raw/master/data/npz/{file}"
    return Source(name, (f"raw/{file}",), kind, megabytes, _REPOSITORY, _SHCHUR, (url,), {"name": name})


def _graphsaint(name: str, megabytes: float, *ids: str) -> Source:
    files = tuple(f"raw/{file}" for file in ("adj_full.npz", "feats.npy", "class_map.json", "role.json"))
    urls = tuple(f"https://drive.usercontent.google.com/download?id={drive_id}&confirm=t" for drive_id in ids)
    return Source(name, files, "graphsaint", megabytes, _REPOSITORY, _GRAPHSAINT, urls)


SOURCES: dict[str, Source] = {
    "Cora": _planetoid("Cora", 0.6),
    "CiteSeer": _planetoid("CiteSeer", 1.0),
    "PubMed": _planetoid("PubMed", 8.7),
    "Chameleon": _wikipedia("chameleon", 11),
    "Squirrel": _wikipedia("squirrel", 24),
    "Photo": _shchur("Amazon", "Photo", "amazon_electronics_photo.npz", 17),
    "Computers": _shchur("Amazon", "Computers", "amazon_electronics_computers.npz", 32),
    "CS": _shchur("Coauthor", "CS", "ms_academic_cs.npz", 13),
    "Physics": _shchur("Coauthor", "Physics", "ms_academic_phy.npz", 16),
    "Amazon Ratings": Source(
        "amazon_ratings",
        ("raw/amazon_ratings.npz",),
        "heterophilous",
        30,
        _REPOSITORY,
        _HETEROPHILOUS,
        (f"{_HETEROPHILOUS}/raw/main/data/amazon_ratings.npz",),
    ),
    "ogbn-arxiv": Source(
        "ogbn_arxiv",
        (
            "raw/edge.csv.gz",
            "raw/node-feat.csv.gz",
            "raw/node-label.csv.gz",
            "split/time/train.csv.gz",
            "split/time/valid.csv.gz",
            "split/time/test.csv.gz",
        ),
        "ogb-csv",
        81,
        "ODC-BY",
        _OGB,
        ("https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",),
    ),
    "PPI": _graphsaint("PPI", 20),
    "Flickr": _graphsaint(
        "Flickr",
        370,
        "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
        "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
        "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
        "1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
    ),
    "Reddit": _graphsaint(
        "Reddit",
        1300,
        "1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
        "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
        "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
        "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
    ),
}


def locate(source: Source) -> Path | None:
    """Return the first folder that holds all files of a data set, or None."""
    for folder in paths.raw_folders():
        if all((folder / source.folder / file).is_file() for file in source.files):
            return folder / source.folder
    return None


def missing(name: str) -> DataError:
    """Return the error for a data set that is not here. It says which files to put where, or how to fetch them."""
    source = SOURCES[name]
    folders = [folder / source.folder for folder in paths.raw_folders()]
    fullest = max(folders, key=lambda folder: sum((folder / file).is_file() for file in source.files))
    absent = [file for file in source.files if not (fullest / file).is_file()]
    where = f"Put {', '.join(absent)} into {fullest}"
    if len(folders) == 1:
        where += f" (or set FEDREPRO_DATA to a folder that holds {source.folder}/)"
    how = f"or run `fedrepro data --fetch {name!r}` ({source.megabytes:g} MB)" if source.urls else "by hand"
    return DataError(
        f"{name} is not here: {len(absent)} of {len(source.files)} files are missing. {where}; "
        f"get them from {source.origin} {how}. Its stand-in is the data set '{name}~standin'."
    )


def verify(name: str, folder: Path) -> str:
    """Compare every file with its checksum, or record it where none is known.

    Returns:
        One SHA-256 for all files together.

    Raises:
        DataError: a file differs. The message names the file and both hashes.
    """
    source = SOURCES[name]
    published = {file: _published().get(f"{source.folder}/{file}") for file in source.files}
    known = {file: sha256 for file, sha256 in published.items() if sha256}
    recorded = paths.root() / "data" / "raw" / source.folder / "SHA256SUMS"
    where = ""
    if not known and recorded.is_file():
        known, where = _sums(recorded), f" recorded in {recorded}"
    hashes = {file: pooch.file_hash(str(folder / file)) for file in source.files}
    for file, sha256 in hashes.items():
        if (expected := known.get(file, sha256)) != sha256:
            found = f"expected sha256 {expected}{where}, found {sha256}"
            raise DataError(f"{folder / file} has the wrong checksum: {found}.")
    if not known:
        # In a read-only checkout nothing is recorded.
        with contextlib.suppress(OSError):
            recorded.parent.mkdir(parents=True, exist_ok=True)
            write(recorded, "".join(f"{sha256}  {file}\n" for file, sha256 in hashes.items()).encode())
    return hashlib.sha256("".join(hashes.values()).encode()).hexdigest()


def fetch(name: str, *, limit: float = float("inf")) -> Path:
    """Download a data set into `data/raw`. Each file arrives with its known checksum, whole, or not at all.

    Args:
        name: name of the data set.
        limit: largest number of megabytes to download.

    Returns:
        The folder of the data set.

    Raises:
        DataError: the data set has no link or is larger than `limit`, the host cannot be reached, or a checksum
            differs.
    """
    source = SOURCES[name]
    if not source.urls or source.megabytes > limit:
        raise missing(name)
    folder = paths.root() / "data" / "raw" / source.folder
    is_zip = len(source.urls) == 1 and source.urls[0].endswith(".zip")
    files = ("download.zip",) if is_zip else source.files
    downloads = pooch.create(
        path=folder,
        base_url=source.origin,
        registry={file: _published().get(f"{source.folder}/{file}") for file in files},
        urls=dict(zip(files, source.urls, strict=True)),
    )
    downloader = pooch.HTTPDownloader(progressbar=_Limit(limit), chunk_size=2**16, timeout=TIMEOUT_SECONDS)
    for file in files:
        try:
            downloads.fetch(file, downloader=downloader)
        except DataError as error:
            raise DataError(f"{downloads.get_url(file)} {error}") from None
        except ValueError as error:
            raise DataError(f"{folder / file} has the wrong checksum: {error}") from error
        except OSError as error:  # the network, the host, or a folder that cannot be written
            raise DataError(
                f"{downloads.get_url(file)} could not be downloaded: {error}. "
                f"Without a network, put the file at {folder / file}."
            ) from error
    if is_zip:
        _unzip(folder / "download.zip", folder, source.files)
    verify(name, folder)
    return folder


class _Limit:
    """A progress bar of pooch that shows nothing and stops a download of more than a number of megabytes."""

    total = 0

    def __init__(self, megabytes: float) -> None:
        self.megabytes = megabytes
        self.size = 0

    def update(self, size: int) -> None:
        """Count bytes that arrived."""
        self.size += size
        if self.size > self.megabytes * 1e6:
            raise DataError(f"is larger than {self.megabytes:g} MB, and nobody asked for it.")

    def reset(self) -> None:
        """Begin a file."""
        self.size = 0

    close = reset


def _unzip(archive: Path, folder: Path, files: tuple[str, ...]) -> None:
    """Take files out of a zip whose members are in one folder of any name, then remove the zip."""
    try:
        with zipfile.ZipFile(archive) as content:
            members = {member.partition("/")[2]: member for member in content.namelist()}
            for file in files:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                write(folder / file, content.read(members[file]))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{archive} cannot be unpacked: {error}.") from error
    finally:
        archive.unlink()


@cache
def _published() -> dict[str, str]:
    """Return the known checksums, `{path below a folder of raw graphs: sha256}`."""
    return _sums(Path(__file__).with_name("checksums.txt"))


def _sums(file: Path) -> dict[str, str]:
    """Read a file in the format of `sha256sum`."""
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines() if line.strip())
    return {name: sha256 for sha256, name in lines}


def write(target: Path, content: bytes) -> None:
    """Write a file whole or not at all, also if other processes write it at the same time."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(target)
