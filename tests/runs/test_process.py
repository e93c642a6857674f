"""A process tells its own memory, computes in torch's usual type, and pauses the garbage collector."""

from __future__ import annotations

import gc
import resource
import sys
import types
from pathlib import Path

import pytest
import torch

from fedrepro.runs import process
from fedrepro.runs.execute import compute
from fedrepro.runs.run import Run


def test_the_default_type_of_the_caller_changes_no_result() -> None:
    """FedSheafHN draws in float32 where a script has set torch's default type to float64, which stays as it was."""
    options = {"rounds": 1, "hidden": 4}
    run = Run("train", "p", "FedSheafHN", "Cora~standin", "", "20/40/40", "random", 2, 0, options)
    (usual,) = compute([run])
    torch.set_default_dtype(torch.float64)
    try:
        (there,) = compute([run])
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert there["result"] == usual["result"] and usual["status"] == "ok"


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


def test_the_collector_is_on_again_where_it_was_on() -> None:
    """The garbage collector runs again after the block, also after an error in it, but not where it was off before."""
    with pytest.raises(KeyError), process.uncollected():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with process.uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
