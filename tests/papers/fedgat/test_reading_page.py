"""FedGAT's page "How to read this paper in thirty minutes" names few files."""

from __future__ import annotations

import re

from fedrepro import paths
from fedrepro.papers.fedgat import exhibits
from fedrepro.reporting import reading

PACKAGE = paths.root() / "fedrepro"


def test_five_files_explain_algorithm_1_training_and_table_1() -> None:
    """They are those behind the lines of both algorithms, and those that list and name the runs of FG-T1."""
    folder = paths.root() / "figures" / "fedgat"
    page = reading.page("fedgat", folder)
    boxes = re.findall(r"^## (Algorithm [12],.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    links = {link for box in boxes for link in re.findall(r"\]\(([^)]*fedrepro/[^)]*\.py)\)", box)}
    files = {(folder / link).resolve().relative_to(PACKAGE.resolve()).with_suffix("").as_posix() for link in links}
    modules = [exhibits.GRIDS["FG-T1"].paper, exhibits.prepare, exhibits.main_reading]
    files |= {module.__module__.removeprefix("fedrepro.").replace(".", "/") for module in modules}
    sentence = re.search(r"Five files explain Algorithm 1[^:]*: ([^.]*)\.", page)
    assert len(boxes) == 4 and sentence
    named = re.findall(r"`([a-z/]+)`", sentence[1])
    assert files == {name if name == "engine/method" else f"papers/fedgat/{name}" for name in named} and len(files) == 5
    folders = {name.removeprefix("papers/").partition("/")[0] for name in files}
    assert folders == {"fedgat", "engine"}  # the paper's folder with its `exhibits`, and the engine's
