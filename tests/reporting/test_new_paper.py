from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedrepro.papers
from fedrepro import paths, registry
from fedrepro.errors import ArgumentError
from fedrepro.reporting import compare, exhibits, notebook, report
from fedrepro.reporting.session import begin
from fedrepro.runs import provenance

FILES = {
    "__init__.py": '"""Toy: a paper of one folder."""\n\nNAME = "Toy"\n',
    "method.py": '''"""A method that sends weights, with one option."""

from dataclasses import dataclass

from fedrepro.engine.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class Toy(FedAvg):
    """FedAvg under another name."""

    strength: float = 1.0
''',
    "exhibits/__init__.py": '''"""The runs behind the exhibits of Toy."""

from fedrepro.reporting.claims import Claim, Difference
from fedrepro.reporting.exhibits import Grid
from fedrepro.runs import sweep


def table():
    return sweep(
        task="train", paper="toy", method=["Toy", "Local"], dataset="Cora", split="10/10/80", partition="metis",
        clients=10, seed=range(3), options={"model": "GCN", "hidden": 32, "rounds": 5},
    )


GRIDS = {"TO-T1": Grid(table, quick=lambda run: run.seed < 2)}
CLAIMS = [
    Claim(
        "TO-C1", "Toy beats local training.", "Toy minus Local, paired over seeds: above 0.",
        [Difference("TO-T1", {"method": "Toy"}, {"method": "Local"}, per={"clients": (5,)}, above=0.0)],
    )
]


def prepare(frame, exhibit_id):
    return frame.assign(percent=100 * frame["before.best.test"].astype(float)) if len(frame) else frame
''',
    "exhibits.csv": "id,label,kind,notebook,title\nTO-T1,Table 1,table,1-toy,Accuracy of two methods\n",
    "published.csv": "exhibit,dataset,method,clients,partition,setting,metric,value,spread,spread_kind,line,"
    "provenance,evidence\n"
    "TO-T1,Cora,Toy,5,metis,,test accuracy (percent),80.1,0.4,sd,1,own,\n",
    "deviations.csv": "id,what the paper says,what we do,why\nTO-Q1,Nothing.,We train two rounds.,It is a toy.\n",
}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a sixth paper next to the five: one folder and one registered method."""
    for name, text in FILES.items():
        path = tmp_path / "papers" / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(fedrepro.papers, "__path__", [*fedrepro.papers.__path__, str(tmp_path / "papers")])
    monkeypatch.setitem(registry.REGISTRY, ("train", "Toy"), registry.Entry("fedrepro.papers.toy.method:Toy"))
    exhibits.registered.cache_clear()
    yield tmp_path
    exhibits.registered.cache_clear()
    provenance.hash_code.cache_clear()
    provenance._known.cache_clear()


def test_a_paper_is_one_folder(toy: Path) -> None:
    """A sixth paper is listed, run, stored, compared, judged and reported with no line elsewhere but its method's."""
    assert exhibits.papers()["toy"] == "Toy" and list(exhibits.papers())[-1] == "toy"
    exhibit = exhibits.find("TO-T1")
    assert (exhibit.notebook, len(exhibit.runs("paper")), len(exhibit.runs("quick"))) == ("toy/1-toy", 6, 4)
    nb = begin("toy/1-toy", profile="smoke", device="cpu", seeds=2, engine="local")
    assert set(nb.settings("TO-T1")["method"]) == {"Toy", "Local"}
    nb.execute("TO-T1")
    frame = nb.stored("TO-T1")
    assert len(frame) == 4 and set(frame["dataset"]) == {"Cora~standin"} and set(frame["rounds"]) == {2}
    table = compare.judge_table(frame, nb.published("TO-T1"), value="percent")
    assert list(table["why"]) == ["measured on a stand-in"]
    nb.save("TO-T1", table)
    assert list(nb.claims("TO-C1")["id"]) == ["TO-C1"] and list(nb.deviations("TO-Q1")["id"]) == ["TO-Q1"]
    pages = report.write(nb.figures)
    assert nb.figures / "toy" / "README.md" in pages
    assert "TO-T1" in (nb.figures / "toy" / "README.md").read_text()
    assert "[Toy](toy/README.md)" in (nb.figures / "README.md").read_text()


def test_a_paper_without_a_notebook_is_told_which_to_write(toy: Path) -> None:
    """The message has the file that the paper's list of exhibits names, its cells, and the part of the guide."""
    for name in ("toy", "toy/1-toy", "toy/1"):
        with pytest.raises(ArgumentError, match="toy has no notebook yet") as error:
            notebook.select([name])
        told = str(error.value)
        assert str(paths.notebooks() / "toy" / "1-toy.ipynb") in told and "`parameters`" in told
        (guide,) = re.findall('CONTRIBUTING.md, "(.*)"', told)
        assert f"## {guide}\n" in (paths.root() / "CONTRIBUTING.md").read_text(encoding="utf-8")
    with pytest.raises(ArgumentError, match="see `fedrepro list`"):
        notebook.select(["toyy"])


def test_the_guide_names_the_files_and_columns_that_papers_have() -> None:
    """CONTRIBUTING lists every file of the smallest paper, and the columns that each file of the papers has."""
    guide = (paths.root() / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a paper")[2]
    told = dict(re.findall(r"^\| `([\w./]+)` \| (.+) \|$", guide.partition("## Rules")[0], re.MULTILINE))
    assert {*FILES} <= {*told}
    for name in [name for name in told if name.endswith(".csv")]:
        files = [file for paper in exhibits.papers() if (file := exhibits.folder(paper) / name).is_file()]
        heads = {file.read_text(encoding="utf-8").partition("\n")[0] for file in files}
        assert heads == {re.findall(r"`([^`]+)`", told[name])[-1]}
