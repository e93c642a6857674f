"""Find, verify and download the files of real graphs.

A file with a known checksum is verified before anything reads it, and what is read is a private copy of what was
verified. If no checksum is known, the hash is recorded once the graph has been read, in `SHA256SUMS` of the data set's
folder in `data/raw`, and verified from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pooch

from fedrepro import paths
from fedrepro.data import copies
from fedrepro.data.shapes import SHAPES, whole
from fedrepro.errors import DamagedError, DataError

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
    sha256: tuple[str, ...] = ()
    """Checksum of each file, where `checksums.txt` has another file of this place or none."""
    lacks: str = ""
    """Description of the part that an incomplete graph is missing."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers in which an incomplete graph differs from the whole one, by the columns of `catalogue.rows`."""


def _listed() -> dict[str, Source]:
    """Return the data sets of `sources.toml` by their names."""
    known = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for given in known.values():
        given |= {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return {name: Source(**given) for name, given in known.items()}


SOURCES: dict[str, Source] = {name: source for name, source in _listed().items() if not source.lacks}
INCOMPLETE: dict[str, Source] = {name: source for name, source in _listed().items() if source.lacks}
"""Real graphs of which a part is missing, `"<name>~incomplete"`."""


def source_of(name: str) -> Source:
    """Return the source of a real graph, whole or incomplete."""
    return SOURCES[name] if name in SOURCES else INCOMPLETE[name]


def locate(source: Source) -> Path | None:
    """Return the first folder that holds all files of a data set, or None."""
    for folder in paths.raw_folders():
        if all((folder / source.folder / file).is_file() for file in source.files):
            return folder / source.folder
    return None


def is_at_hand(dataset: str, *, download: bool) -> bool:
    """Return whether a data set can be had: all but real graphs can, which need their raw files.

    Args:
        download: whether a small graph, which `fetch` gets without being asked for it, counts as well.
    """
    name = "Cora" if dataset.startswith("subCora") else dataset  # subCora is cut from it
    if name not in SOURCES and name not in INCOMPLETE:
        return True
    source = source_of(name)
    return locate(source) is not None or (download and bool(source.urls) and source.megabytes <= ASK_ABOVE)


def missing(name: str) -> DataError:
    """Return the error for a data set that is not here. It says which files to put where, or how to fetch them."""
    source = source_of(name)
    folders = [folder / source.folder for folder in paths.raw_folders()]
    fullest = max(folders, key=lambda folder: sum((folder / file).is_file() for file in source.files))
    absent = [file for file in source.files if not (fullest / file).is_file()]
    where = f"Put {', '.join(absent)} into {fullest}"
    if len(folders) == 1:
        where += f" (or set FEDREPRO_DATA to a folder that holds {source.folder}/)"
    how = f"or run `fedrepro data --fetch {name!r}` ({source.megabytes:g} MB)" if source.urls else "by hand"
    return DataError(
        f"{name} is not here: {_elsewhere(source)}{len(absent)} of {len(source.files)} files are missing. {where}; "
        f"get them from {source.origin} {how}. Its stand-in is the data set '{whole(name)}~standin'."
    )


def _elsewhere(source: Source) -> str:
    """Return what `$FEDREPRO_DATA` lacks of a data set, as the beginning of a sentence; nothing if it is not set."""
    given = os.environ.get("FEDREPRO_DATA")
    if not given:
        return ""
    absent = [file for file in source.files if not (Path(given) / source.folder / file).is_file()]
    if not Path(given).is_dir():
        return f"FEDREPRO_DATA={given} is no folder, and "
    return f"FEDREPRO_DATA={given} lacks {source.folder}/{absent[0]}, and " if absent else ""


def stage(source: Source) -> copies.Private | None:
    """Return a private folder for the files of a data set, still empty, or None if they are not here."""
    folder = locate(source)
    return None if folder is None else copies.private(folder)


def fetch_and_stage(name: str, *, limit: float) -> copies.Private:
    """Download a data set as `fetch` does, and return a private folder for its files, still empty."""
    return copies.private(fetch(name, limit=limit))


def verify(name: str, folder: copies.Private) -> str:
    """Check every file of a staged data set, and fill its private folder with copies of what was checked.

    Nobody can change a private copy between its check and its use. If `data/processed` has a sound copy of the graph,
    no raw file will be read, and the folder stays empty.

    Returns:
        One SHA-256 for all files together and the code that reads them, by which `data/processed` knows the graph.

    Raises:
        DamagedError: a file differs from its checksum, or holds more than the graph can have. The message names it.
    """
    assert folder.origin is not None
    source, origin = source_of(name), folder.origin
    hashes, known = check(name, origin), known_sums(source)[0]
    whole = hashlib.sha256("".join([*hashes.values(), _reader(source)]).encode()).hexdigest()
    kept = list((paths.root() / "data" / "processed").glob(f"{whole[:16]}-*.npz"))
    sound = [copies.is_sound(file) for file in kept]
    if not known:
        _to_record[whole[:16]] = source, hashes
    if kept and all(sound):
        with contextlib.suppress(OSError):  # in a read-only checkout nothing is recorded
            _record(whole[:16])
        return whole
    for file, sha256 in hashes.items():
        copy = copies.copy(origin / file, folder / file)
        if copies.sha256(copy) != sha256:
            raise DamagedError(f"{origin / file} was changed while it was read. Load the graph again.")
        if file not in known:
            _measure(copy, origin / file, name)
    # In a read-only checkout a damaged copy stays where it is, and the graph is looked for under another name.
    return hashlib.sha256(whole.encode()).hexdigest() if any(file.exists() for file in kept) else whole


def _reader(source: Source) -> str:
    """Return a text that changes with whatever makes a graph of its raw files, so that no copy outlives its reader."""
    code = copies.sha256(Path(__file__).with_name("formats.py"))
    return f"{code} {version('torch_geometric')} {source.format} {sorted(source.arguments.items())}"


def check(name: str, folder: Path) -> dict[str, str]:
    """Compare the files of a data set with their published or recorded checksums.

    Returns:
        Each file and its SHA-256.

    Raises:
        DamagedError: a file differs or cannot be read. The message names the file, and both hashes.
    """
    source = source_of(name)
    known, where = known_sums(source)
    own = source.urls and folder == download_folder(source)
    again = f"`fedrepro data --fetch {name!r}` replaces the file" if own else "Replace the file"
    again = f"It may be a file of the whole graph, {whole(name)!r}" if source.lacks else again
    hashes = {file: copies.sha256(folder / file) for file in source.files}
    for file in source.files:
        if (expected := known.get(file, hashes[file])) != hashes[file]:
            found = f"expected sha256 {expected}{where}, found {hashes[file]}"
            raise DamagedError(f"{folder / file} has the wrong checksum: {found}. {again}.")
    return hashes


def replace(name: str) -> Path:
    """Download the files of a data set again that are damaged, see `fetch`.

    Files without a known checksum are all replaced; the old ones stay under `<name>.damaged`.
    """
    source = SOURCES[name]
    if not known_sums(source)[0]:
        for old in (download_folder(source) / file for file in source.files):
            old.replace(old.with_name(f"{old.name}.damaged"))
    return fetch(name)


def keep(file: Path, content: bytes) -> None:
    """Keep a graph in `data/processed`, and record the checksums of its raw files where none is published.

    They are recorded only now that the files have been read: half a download is never taken for the whole.
    """
    copies.keep(file, content)
    _record(file.name[:16])


def _record(graph: str) -> None:
    if graph in _to_record:
        source, hashes = _to_record.pop(graph)
        lines = "".join(f"{sha256}  {name}\n" for name, sha256 in hashes.items())
        paths.replace_file(download_folder(source) / _SUMS, lines.encode())


_SUMS = "SHA256SUMS"
_to_record: dict[str, tuple[Source, dict[str, str]]] = {}


def download_folder(source: Source) -> Path:
    """Return the folder in `data/raw` into which a data set is downloaded."""
    return paths.root() / "data" / "raw" / source.folder


def known_sums(source: Source) -> tuple[dict[str, str], str]:
    """Return the published checksums of a data set's files, or else the recorded ones, and where these are."""
    published: dict[str, str | None] = dict(zip(source.files, source.sha256))
    published = published or {file: _published().get(f"{source.folder}/{file}") for file in source.files}
    known, recorded = {file: sha256 for file, sha256 in published.items() if sha256}, download_folder(source) / _SUMS
    return (_sums(recorded), f" recorded in {recorded}") if not known and recorded.is_file() else (known, "")


def _measure(copy: Path, file: Path, name: str) -> None:
    """Refuse a file, given its private `copy`, that is no whole zip or unpacks to more than the graph can have."""
    shape = SHAPES[whole(name)]
    # Sixteen bytes for each feature, label and split of a node, and for each end of an edge.
    most = 16 * (shape.nodes * (shape.features + len(shape.classes) + shape.labels + 64) + 4 * shape.edges)
    if copy.suffix in (".npz", ".zip") and not zipfile.is_zipfile(copy):
        raise DamagedError(f"{file} is no whole {copy.suffix[1:]} file of {name}. Download it again.")
    if (size := copies.unpacked(copy)) > most:
        raise DamagedError(f"{file} unpacks to {size / 1e6:.4g} MB, but {name} has at most {most / 1e6:.4g} MB.")


def fetch(name: str, *, limit: float = float("inf")) -> Path:
    """Download a data set into `data/raw`. Each file arrives with its known checksum, whole, or not at all.

    Args:
        name: name of the data set.
        limit: largest number of megabytes to download.

    Returns:
        The folder of the data set.

    Raises:
        DataError: the data set has no link or is larger than `limit`, or the host cannot be reached.
        DamagedError: a checksum differs.
    """
    source = SOURCES[name]
    if not source.urls or source.megabytes > limit:
        raise missing(name)
    folder, known = download_folder(source), known_sums(source)[0]
    is_zip = len(source.urls) == 1 and source.urls[0].endswith(".zip")
    files = ("download.zip",) if is_zip else source.files
    downloads = pooch.create(
        path=folder,
        base_url=source.origin,
        registry={file: known.get(file) for file in files},
        urls=dict(zip(files, source.urls, strict=True)),
    )
    downloader = pooch.HTTPDownloader(progressbar=_Limit(limit), chunk_size=2**16, timeout=TIMEOUT_SECONDS)
    for file in files:
        try:
            downloads.fetch(file, downloader=downloader)
        except DataError as error:
            raise DataError(f"{downloads.get_url(file)} {error}") from None
        except ValueError as error:
            raise DamagedError(f"{folder / file} has the wrong checksum: {error}") from error
        except OSError as error:  # the network, the host, or a folder that cannot be written
            raise DataError(
                f"{_elsewhere(source)}{downloads.get_url(file)} could not be downloaded: {error}. "
                f"Without a network, put the file at {folder / file}, or set FEDREPRO_DATA to a folder that holds "
                f"{source.folder}/."
            ) from error
    if is_zip:
        _unzip(folder / "download.zip", folder, name)
    check(name, folder)
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


def _unzip(archive: Path, folder: Path, name: str) -> None:
    """Take files out of a zip whose members are in one folder of any name, then remove the zip."""
    try:
        _measure(archive, archive, name)
        with zipfile.ZipFile(archive) as content:
            members = {member.partition("/")[2]: member for member in content.namelist()}
            for file in SOURCES[name].files:
                paths.replace_file(folder / file, content.read(members[file]))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DamagedError(f"{archive} cannot be unpacked: {error}.") from error
    finally:
        archive.unlink()


@cache
def _published() -> dict[str, str]:
    """Return the known checksums, `{path below a folder of raw graphs: sha256}`."""
    return _sums(Path(__file__).with_name("checksums.txt"))


def _sums(file: Path) -> dict[str, str]:
    """Read a file in the format of `sha256sum`."""
    try:
        lines = [line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        return {name: sha256 for sha256, name in lines}
    except (OSError, ValueError):
        raise DamagedError(f"{file} holds no checksums. Remove it, and it is written again.") from None
