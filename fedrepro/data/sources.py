"""Raw graphs: where they lie on disk, their checksums, and how to get them.

A file with a known checksum is verified before anything reads it. Where none is known the hash is recorded at
first use, in `SHA256SUMS` of the set's folder in `data/raw`, and verified from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro import paths
from fedrepro.errors import DataError

ASK_ABOVE = 50
"""Megabytes above which nothing is downloaded unless asked for (`fedrepro data --fetch NAME`)."""

TIMEOUT_SECONDS = 5.0
"""Longest wait for a host to answer."""


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and how it is read."""

    folder: str
    """Name of its folder among the raw graphs."""
    files: tuple[str, ...]
    """Relative to that folder."""
    format: str
    """How its files are read: the `kind` of `formats.read`."""
    megabytes: float
    """Size of the download, about."""
    licence: str
    """As stated at the origin."""
    origin: str
    """Page of the publishers."""
    urls: tuple[str, ...] = ()
    """One a file, or a single zip that holds them all; none where the files must be got by hand."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the class of PyG that reads them."""


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
    urls = tuple(f"https://drive.usercontent.google.com/download?id={each}&confirm=t" for each in ids)
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
    """The first folder that holds all files of a data set, or None."""
    for folder in paths.raw_folders():
        if all((folder / source.folder / file).is_file() for file in source.files):
            return folder / source.folder
    return None


def missing(name: str) -> DataError:
    """The error for a data set that is not here: which files to put where, and what would fetch them."""
    source = SOURCES[name]
    folders = [folder / source.folder for folder in paths.raw_folders()]
    best = max(folders, key=lambda folder: sum((folder / file).is_file() for file in source.files))
    absent = [file for file in source.files if not (best / file).is_file()]
    where = f"Put {', '.join(absent)} into {best}"
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
        One sha256 for all files together.

    Raises:
        DataError: a file differs; the message names it, what was expected and what was found.
    """
    source = SOURCES[name]
    known = {file: _published()[f"{source.folder}/{file}"] for file in source.files if _known(source, file)}
    recorded = paths.root() / "data" / "raw" / source.folder / "SHA256SUMS"
    whence = ""
    if not known and recorded.is_file():
        known, whence = _sums(recorded), f" recorded in {recorded}"
    found = {file: _sha256(folder / file) for file in source.files}
    for file, sha256 in found.items():
        _check(folder / file, known.get(file, sha256), sha256, whence)
    if not known:
        with contextlib.suppress(OSError):  # a read-only checkout
            recorded.parent.mkdir(parents=True, exist_ok=True)
            write(recorded, "".join(f"{sha256}  {file}\n" for file, sha256 in found.items()).encode())
    return hashlib.sha256("".join(found.values()).encode()).hexdigest()


def _known(source: Source, file: str) -> bool:
    return f"{source.folder}/{file}" in _published()


def fetch(name: str, *, limit: float = float("inf")) -> Path:
    """Download a data set into `data/raw`.

    Args:
        name: of the data set.
        limit: most megabytes to download.

    Returns:
        Its folder.

    Raises:
        DataError: it must be got by hand, is larger than `limit`, the host cannot be reached, or a checksum
            differs.
    """
    source = SOURCES[name]
    if not source.urls or source.megabytes > limit:
        raise missing(name)
    folder = paths.root() / "data" / "raw" / source.folder
    known = _published()
    if len(source.urls) == 1 and source.urls[0].endswith(".zip"):
        archive = folder / "download.zip"
        _download(source.urls[0], archive, None, limit)
        _unzip(archive, folder, source.files)
    else:
        for file, url in zip(source.files, source.urls, strict=True):
            if not (folder / file).is_file():
                _download(url, folder / file, known.get(f"{source.folder}/{file}"), limit)
    verify(name, folder)
    return folder


def _download(url: str, target: Path, expected: str | None, limit: float) -> None:
    """Fetch one file, whole or not at all."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, partial.open("wb") as file:
            size = 0
            while chunk := answer.read(1 << 20):
                size += len(chunk)
                if size > limit * 1e6:
                    raise DataError(f"{url} is larger than {limit:g} MB, and nobody asked for it.")
                file.write(chunk)
        if expected:
            _check(partial, expected, _sha256(partial), f" of {url}")
        partial.replace(target)
    except DataError:
        raise
    except (OSError, http.client.HTTPException) as error:  # the network, the host, or a folder one cannot write to
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} could not be downloaded: {reason}. Without a network, put the file at {target}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _unzip(archive: Path, folder: Path, files: tuple[str, ...]) -> None:
    """Take `files` out of a zip whose members lie in one folder of any name, then remove the zip."""
    try:
        with zipfile.ZipFile(archive) as content:
            members = {member.partition("/")[2]: member for member in content.namelist()}
            for file in files:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                write(folder / file, content.read(members[file]))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{archive} is not the zip it should be: {error}.") from error
    finally:
        archive.unlink()


@cache
def _published() -> dict[str, str]:
    """Checksums of the raw files: path below a folder of raw graphs to sha256."""
    return _sums(Path(__file__).with_name("checksums.txt"))


def _sums(file: Path) -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines() if line.strip())
    return {name: sha256 for sha256, name in lines}


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _check(file: Path, expected: str, found: str, whence: str = "") -> None:
    if expected != found:
        raise DataError(f"{file} has the wrong checksum: expected sha256 {expected}{whence}, found {found}.")


def write(target: Path, content: bytes) -> None:
    """Write whole or not at all, with other processes doing the same."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(target)
