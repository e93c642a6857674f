"""What a process says of its own memory."""

from __future__ import annotations

import resource
import sys
import types
from pathlib import Path

import pytest

from fedrepro.runs import process


@pytest.mark.parametrize(("platform", "told"), [("darwin", 300 * 2**20), ("freebsd14", 300 * 2**10)])
def test_memory_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, platform: str, told: int) -> None:
    """getrusage counts in bytes on macOS and in KiB elsewhere; both are told in MiB."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        patch.setattr(Path, "exists", lambda self: False)
        patch.setattr(resource, "getrusage", lambda who: types.SimpleNamespace(ru_maxrss=told))
        found = process.resident_mebibytes()
    assert found == 300


def test_memory_is_what_the_process_holds() -> None:
    """40 MiB that were touched raise the largest memory by so much, if it was not larger before."""
    before = process.peak_mebibytes(bytes)
    assert 30 < process.peak_mebibytes(bytearray, 40 * 2**20) - before < 60
