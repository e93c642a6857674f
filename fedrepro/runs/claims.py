"""Claim runs in flight, so that of all processes on a store one computes each run.

A claim is a lock on one byte of `claims.lock`, next to the store's files, at the offset that the run's key gives.
The system drops the locks of a process with the process, so what a killed one had claimed is free at once.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro import paths

FILE = "claims.lock"

# Windows has no locks on ranges of bytes that end with their process: there a claim holds in its process only.
_fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None


class Claims:
    """The claims of this process in a folder. Claiming, unlike looking up, makes the folder and the file.

    Threads of one process have one object between them (`claims_of`), as the system does not tell their locks apart
    and drops them all when the file is closed once.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._held: set[str] = set()
        self._descriptor = -1
        self._one_thread = threading.Lock()

    def claim(self, key: str) -> bool:
        """Claim a run; return False if somebody else has it.

        Raises:
            OSError: the file cannot be made or locked.
        """
        with self._one_thread:
            if key in self._held:
                return False
            if self._descriptor < 0:
                paths.make_folder(self._path.parent)
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            if not self._locked(key):
                return False
            self._held.add(key)
            return True

    def release(self, key: str) -> None:
        """Give a claimed run back."""
        with self._one_thread:
            self._held.discard(key)
            if self._descriptor >= 0 and _fcntl is not None:
                _fcntl.lockf(self._descriptor, _fcntl.LOCK_UN, 1, _place(key))
            if self._descriptor >= 0 and not self._held:
                os.close(self._descriptor)
                self._descriptor = -1

    def _locked(self, key: str) -> bool:
        if _fcntl is None:
            return True
        try:
            _fcntl.lockf(self._descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):  # which of the two depends on the system
            return False
        return True


def _place(key: str) -> int:
    return int(key[:15], 16)  # 60 bits: two of a million runs share a byte once in two million stores


def claims_of(folder: Path) -> Claims:
    """Return the claims of this process in a folder."""
    return _claims(folder.resolve(), os.getpid())


@cache
def _claims(folder: Path, process: int) -> Claims:
    return Claims(folder)
