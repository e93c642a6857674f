"""A record says where it was computed, at which commit, and from which files of a graph."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.data import sources
from fedrepro.runs import provenance, records
from fedrepro.runs.run import Run


def test_environment() -> None:
    """The environment names versions, machine, device and threads, and is the same when asked again."""
    described = provenance.environment("cpu")
    assert described == provenance.environment("cpu")
    assert described["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    assert described["torch"] and described["cpu"] and described["device"] == "cpu" and described["threads"] >= 1
    divided = provenance.environment("cpu", "kmeans(slack=20)")
    assert {*divided} - {*described} == {"scikit-learn"} and "networkx" in provenance.environment("cpu", "louvain")


def test_a_gpu_that_is_not_here_is_called_by_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment on a GPU that this process does not have is told by the name of its device."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert provenance.environment("cuda")["device"] == "cuda"


def test_processors_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Family and model follow the name, if the system tells them."""
    told = []
    for family, model in ((25, 17), (26, 2)):
        text = f"processor\t: 0\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: Some CPU\n\nprocessor\t: 1\n"
        monkeypatch.setattr(Path, "read_text", lambda self, text=text, **_: text)
        told.append(provenance._processor())
    assert told == ["Some CPU (family 25, model 17)", "Some CPU (family 26, model 2)"]


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout has a commit, marked where code differs. Results leave it clean, and without git there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance.paths, "root", lambda: tmp_path)
    monkeypatch.setattr(provenance.paths, "CHECKOUT", tmp_path)
    assert provenance.commit() == ""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (tmp_path / "fedrepro").mkdir()
    (tmp_path / "fedrepro/a.py").write_text("1")
    (tmp_path / "results").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True, cwd=tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12,}", first := provenance.commit())
    (tmp_path / "results").write_text("2")
    assert provenance.commit() == first
    (tmp_path / "fedrepro/a.py").write_text("2")
    assert provenance.commit() == f"{first}-dirty"
    (tmp_path / "fedrepro/a.py").write_text("1")
    assert provenance.commit() == first
    with monkeypatch.context() as patched:
        real = provenance.git
        patched.setattr(provenance, "git", lambda *told: b"" if told[0] == "status" else real(*told))
        assert provenance.commit() == f"{first}-dirty", "what git could not compare is not clean"
    (tmp_path / "inside").mkdir()
    monkeypatch.setattr(provenance.paths, "root", lambda: tmp_path / "inside")
    assert provenance.commit() == "", "the commit of another project"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() == ""


def test_a_record_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to the fingerprint a record has its parts, the commit, and the checksum of a real graph's files."""
    monkeypatch.setattr(provenance, "loaded_commit", lambda: "0123456789ab-dirty")
    run = Run("train", "fedgat", "FedAvg", "Cora", split="public")
    record = records.record(run, "cpu", records.batch_of([run], 1.0), {"result": {}})
    assert record["commit"] == "0123456789ab-dirty" and set(record["code"]) >= {"engine", "data", "runs"}
    sums = list(sources.known_sums(sources.SOURCES["Cora"])[0].values())
    assert len(record["data"]) == 16 and len(sums) == 8
    assert hashlib.sha256("".join(sums).encode()).hexdigest().startswith(record["data"])
    assert records.record(run.replace(dataset="Cora~standin"), "cpu", record["batch"], {"result": {}})["data"] == ""
