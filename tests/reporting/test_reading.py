"""The pages that lead from a line of an algorithm to its function, its test and its exhibit."""

import pytest

from fedrepro import paths
from fedrepro.reporting import exhibits, reading

PAPERS = ["fedgat", "fedstruct", "gfl", "feras", "fedsheafhn"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_function_of_an_algorithm_exists(paper):
    """The docstrings name no function that is not there."""
    index = reading.Index(paper)
    named = [
        (module, name)
        for module in index.paper
        for box in module.boxes()
        for step in box.steps
        for name in step.functions
    ]
    assert [(module.path.name, name) for module, name in named if index.find(name, module) is None] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_algorithm_leads_to_tests_and_an_exhibit(paper):
    """A page has the paper's first algorithm, with functions, tests and its exhibit."""
    first = next(row["id"] for row in exhibits.listed(paper) if row["label"] == "Algorithm 1")
    page = reading.page(paper, paths.root() / "figures" / paper)
    lines = [line for line in page.splitlines() if line.startswith("| 1 | ")]
    assert f"[{first}]({first}.csv)" in lines[0]
    assert "method.py" in page and "tests/papers" in page


def test_links_lead_to_files(tmp_path):
    """Every relative link of a page is a file of the checkout."""
    folder = paths.root() / "figures" / "gfl"
    links = reading.re.findall(r"\]\(([^)]+)\)", reading.page("gfl", folder))
    assert links and all((folder / link).is_file() for link in links)


def test_a_wrong_name_is_found(tmp_path):
    """A function that a box names and nothing defines is not resolved, and an inherited one is."""
    source = '"""Box:\n\n    1. One line.   `no_such_function`, `Child.step`\n'
    source += '    2. Another.   `Child.nothing`\n\nThe end.\n"""\n'
    source += "class Base:\n    def step(self): ...\n\nclass Child(Base):\n    pass\n"
    file = tmp_path / "method.py"
    file.write_text(source, encoding="utf-8")
    module = reading.Module(file)
    (box,) = module.boxes()
    index = reading.Index("gfl")
    assert box.heading == "Box" and [step.number for step in box.steps] == ["1", "2"]
    assert index.find("no_such_function", module) is None
    assert index.find("Child.step", module) is module
    assert index.find("Child.nothing", module) is None
