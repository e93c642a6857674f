"""Make files safe to read: private copies of raw files, and computed arrays with a checksum next to them."""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import tempfile
import weakref
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from fedrepro import paths
from fedrepro.errors import DamagedError, DataError


class Private(type(Path())):  # type: ignore[misc]
    """An empty folder of only this process, which is removed with the last reference to it.

    It gets copies of files of the folder `origin`, and text made from it names that folder.
    """

    origin: Path | None = None

    def __format__(self, spec: str) -> str:
        return format(str(self.origin or self), spec)


def private(origin: Path) -> Private:
    """Return a new private folder with the name of `origin`."""
    scratch = tempfile.mkdtemp(prefix="fedrepro-")
    folder = Private(scratch, origin.name)
    folder.origin = origin
    folder.mkdir()
    weakref.finalize(folder, shutil.rmtree, scratch, ignore_errors=True)
    return folder


def copy(file: Path, target: Path) -> Path:
    """Copy a file and return the copy.

    Raises:
        DataError: it cannot be copied, for example because the target's disk is full.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(file, target))
    except OSError as error:
        raise DataError(f"{file} cannot be copied to {target.parent}: {error.strerror or error}.") from error


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits.

    Raises:
        DamagedError: the file cannot be read.
    """
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DamagedError(f"{file} cannot be read: {error.strerror or error}.") from error


def keep(file: Path, content: bytes) -> None:
    """Write a file that could be computed again, and its checksum next to it. `sha256sum --check` reads that, too.

    Raises:
        OSError: the folder cannot be written.
    """
    paths.replace_file(file, content)
    paths.replace_file(_sum(file), f"{hashlib.sha256(content).hexdigest()}  {file.name}\n".encode())


def is_sound(file: Path) -> bool:
    """Return whether a file is here with the checksum that `keep` wrote. A damaged one is removed if it can be."""
    try:
        if sha256(file) == _sum(file).read_text(encoding="utf-8").partition(" ")[0]:
            return True
    except (OSError, ValueError):
        pass
    for part in (file, _sum(file)):
        with contextlib.suppress(OSError):
            part.unlink()
    return False


def _sum(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def unpacked(file: Path) -> int:
    """Return the bytes that a file has after unpacking, as the headers of npz, npy, zip and gz tell before it is done.

    A file without such headers, or with damaged ones, counts as it is. Its reader refuses it.
    """
    size = file.stat().st_size
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return sum(max(member.file_size, _array_size(archive, member)) for member in archive.infolist())
        if file.suffix == ".gz":
            return max(size, int.from_bytes(file.read_bytes()[-4:], "little"))
        if file.suffix == ".npy":
            with file.open("rb") as content:
                return max(size, _declared(content))
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, RuntimeError):
        pass  # RuntimeError: an encrypted zip, or a compression that is not installed
    return size


def _array_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    if not member.filename.endswith(".npy"):
        return 0
    with archive.open(member) as content:
        return _declared(content)


def _declared(content: IO[bytes]) -> int:
    """Return the bytes of an array in NumPy's format, as its header has them."""
    version = np.lib.format.read_magic(content)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(content)
    return math.prod(shape) * dtype.itemsize
