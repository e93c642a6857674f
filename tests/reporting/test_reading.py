"""The pages that lead from a line of an algorithm to its function, its test and its exhibit."""

import re

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


@pytest.mark.parametrize(
    ("paper", "lines", "wanted"),
    [
        ("gfl", (1, 2, 3, 4, 5), "test_rounds_equal_algorithm_1"),
        ("feras", (1, 2, 3, 5, 6), "test_three_rounds_equal_the_plain_program"),
        ("fedstruct", (1, 4, 6), "test_training_is_central_training_of_the_reference"),
        ("fedsheafhn", (1, 2, 4, 5, 6), "test_rounds_equal_algorithm_1"),
    ],
)
def test_hooks_lead_to_the_program_written_out(paper, lines, wanted):
    """The lines of Algorithm 1 that training runs name the test that compares it with a plain program."""
    page = reading.page(paper, paths.root() / "figures" / paper)
    rows = [line for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    first = {int(row.split(" | ")[0].strip("| ")): row for row in reversed(rows[: max(lines)])}
    assert all(wanted in first[line] for line in lines)


def test_fedgats_hooks_lead_to_its_messages():
    """Each line of FedGAT's Algorithm 2 names the test that compares training by messages with training by edges."""
    page = reading.page("fedgat", paths.root() / "figures" / "fedgat").partition("Algorithm 2")[2]
    lines = [line for line in page.splitlines() if re.match(r"\| \d", line)][:5]
    assert len(lines) == 5
    assert [line for line in lines if "test_training_by_messages_equals_training_by_edges" not in line] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_line_names_a_test_or_says_why_none(paper):
    """The cell of each line names a test function that its file defines, or says why it names none."""
    folder = paths.root() / "figures" / paper
    lines = [line for line in reading.page(paper, folder).splitlines() if re.match(r"\| \d+ \|", line)]
    named = [cell for line in lines for cell in line.split(" | ")[3].split("; ")]
    links = [re.match(r"\[[^]]+\]\(([^)]+)\): `(test_\w+)`", cell) for cell in named]
    assert lines and any(links)
    unnamed = [cell for cell, link in zip(named, links) if link is None]
    assert [cell for cell in unnamed if not re.match(r"(none|all tests of \[.*), since ", cell)] == []
    for link in filter(None, links):
        assert f"def {link[2]}(" in (folder / link[1]).read_text(encoding="utf-8"), link[0]
    assert len(unnamed) <= 4


def test_a_test_that_calls_comes_before_one_that_names(tmp_path):
    """A module of the same name is no function, and a test that only mentions a function is the second choice."""
    files = {"act.py": "def act(): ...\ndef other(): ...\n"}
    files["test_one.py"] = "def test_module(): patch(act); act.other\n\ndef test_mentions(): x = other\n"
    files["test_two.py"] = "def test_calls(): act.other()\n\ndef test_act(): act.act()\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    index = reading.Index("gfl")
    index.tests = [reading.Module(tmp_path / name) for name in ("test_one.py", "test_two.py")]
    module = reading.Module(tmp_path / "act.py")
    assert index.test("act", module) == (index.tests[1], "test_act", "")
    assert index.test("other", module) == (index.tests[1], "test_calls", "")
    index.tests.pop()
    assert index.test("act", module) is None
    assert index.test("other", module) == (index.tests[0], "test_module", "")


def test_a_helper_of_a_test_file_is_not_the_function(tmp_path):
    """A helper of a test file hides a function of its name, unless a module or an object stands before it."""
    files = {"act.py": "def step(): ...\ndef _inner(): ...\ndef outer(): _inner()\n"}
    files["test_one.py"] = "def step(): ...\n\ndef test_helper(): step()\n\ndef test_package(): act.step()\n"
    files["test_two.py"] = "def test_outer(): outer()\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    index, module = reading.Index("gfl"), reading.Module(tmp_path / "act.py")
    index.tests = [reading.Module(tmp_path / name) for name in ("test_one.py", "test_two.py")]
    assert index.test("step", module) == (index.tests[0], "test_package", "")
    assert index.test("_inner", module) == (index.tests[1], "test_outer", "outer")


def test_links_lead_to_files(tmp_path):
    """Every relative link of a page is a file of the checkout."""
    folder = paths.root() / "figures" / "gfl"
    links = re.findall(r"\]\(([^)]+)\)", reading.page("gfl", folder))
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
