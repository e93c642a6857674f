"""The galleries, made from the figures folder alone."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.reporting import exhibits, figures, files, priors, report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A figures folder with two exhibits of FedGAT, one of the engine, claims and deviations."""
    table = pd.DataFrame(
        {
            "dataset": ["Cora", "CiteSeer", "PubMed"],
            "ours_mean": [0.8, 0.7, None],
            "runs": [10, 3, 0],
            "verdict": ["agrees", "differs", "not tested"],
        }
    )
    curve = pd.DataFrame({"clients": [1, 20], "test": [0.8, 0.8], "runs": [4, 4], "method": "FedGAT"})
    picture = figures.curves(curve, "clients", "test", "method")
    files.save("fedgat", "FG-T1", table, folder=tmp_path)
    files.save("fedgat", "FG-F2a", curve, picture, tmp_path)
    files.save("fedgat", "FG-I1", pd.DataFrame({"error": ["< 1e-12"]}), folder=tmp_path)
    files.save("fedgat", "FG-T1-literal", table, folder=tmp_path)
    files.save("engine", "speed", pd.DataFrame({"clients": [10], "seconds": [0.5]}), folder=tmp_path)
    claims = pd.DataFrame(
        [["FG-C1", "fedgat", "near GAT | always", "means", "0.80\nagainst 0.81", "holds in part"]],
        columns=["id", "paper", "claim", "check", "evidence", "verdict"],
    )
    files.save("fedgat", "claims", claims, folder=tmp_path)
    files.save("fedgat", "deviations", pd.DataFrame({"id": ["D1"], "why": ["no dropout"]}), folder=tmp_path)
    return tmp_path


ID = re.compile(r"\b(?:FG|FS|GFL|FR|SH)-[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
NUMBERED = re.compile(r"(?:Theorem|Algorithm|Table|Section) [\d.]*\d")


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def cells(text: str, start: str) -> list[str]:
    return [cell.strip() for cell in line(text, start).strip("|").split(" | ")]


def page(folder: Path) -> str:
    return (folder / "fedgat" / "README.md").read_text()


def test_the_page_of_the_rule_has_every_prior(folder: Path) -> None:
    """Each row of the kept file stands in a table, with the paper's name."""
    report.write(folder)
    rule = (folder / report.RULE).read_text()
    kept = paths.read_csv(priors.FILE)
    assert len(kept) > 1
    for row in kept:
        start = f"| {exhibits.papers()[row['paper']]} | {row['quantity']} | {files.plain(row['dataset'])} "
        assert cells(rule, start)[3:] == list(row.values())[3:]


def test_the_page_of_the_rule_shows_a_number_of_each_word() -> None:
    """Every example can be worked out again from its row: d and the intervals give the word."""
    rule_page = report.rule_page(paths.root() / "figures", list(exhibits.papers()))
    shown = rule_page.partition("One number of each word")[2].partition("## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if "%" not in line]
    examples = [line for line in lines if len(line) == 7 and not line[0].startswith("-")]
    assert examples
    for word, _, _, _, d, half90, half95 in examples:
        low, high = map(float, half90.split(" to "))
        low95, high95 = map(float, half95.split(" to "))
        assert low < float(d) < high and low95 < low and high < high95
        within, covers = max(abs(low), abs(high)) <= 2, low95 <= 0 <= high95
        apart = low > 2 or high < -2
        wide = high95 - low95 > 10
        fits = "agrees" if within else f"compatible{', but wide' * wide}" if covers else ""
        assert word == (fits or ("differs" if apart else "differs a little"))


def test_the_glossary_explains_the_columns_of_five_files(folder: Path) -> None:
    """Each column that stands in the files of five exhibits has a row, and each row a column of some file."""
    report.write(folder)
    text = (folder / report.GLOSSARY).read_text()
    assert f"]({report.GLOSSARY})" in (folder / "README.md").read_text()
    assert f"]({report.GLOSSARY})" in (folder / report.RULE).read_text()
    found = (paths.root() / "figures").glob("*/*.csv")
    count = Counter(name for path in found for name in pd.read_csv(path, nrows=0))
    known = {row["column"]: row["meaning"] for row in paths.read_csv(report.MEANINGS)}
    assert not {name for name in count if count[name] >= 5} - known.keys()
    assert known.keys() <= count.keys()
    for name, meaning in known.items():
        assert f"\n| `{name}` | {meaning} | " in text


def test_every_paper_gets_a_page(folder: Path) -> None:
    """A page per paper and other folder, a guide per paper, and one page above them."""
    written = {path.relative_to(folder).as_posix() for path in report.write(folder)}
    papers = ["fedgat", "fedstruct", "gfl", "feras", "fedsheafhn"]
    pages = {f"{paper}/{page}" for paper in papers for page in ("README.md", "READING.md")}
    assert written == {"README.md", "RULE.md", "COLUMNS.md", "engine/README.md", *pages}


def test_exhibits_are_listed_with_their_state(folder: Path) -> None:
    """A drawn exhibit has its runs, verdicts, files, notebook and command; one that is not says so."""
    report.write(folder)
    text = (folder / "fedgat" / "README.md").read_text()
    place = os.path.relpath(paths.root() / "notebooks/fedgat/6-experiments.ipynb", folder / "fedgat")
    assert (
        f"Drawn by `fedrepro run fedgat/6-experiments` ([notebook]({place})). `fedrepro show FG-F2a` lists" in text
        and "show FG-I1`" not in text
    )
    assert "Drawn: 3 of 39 exhibits." in text
    assert cells(text, "| FG-T1 ")[4:] == [
        "drawn", "0-10", "1 agrees; 1 differs; 1 not tested", "[csv](FG-T1.csv)",
    ]  # fmt: skip
    assert cells(text, "| FG-F2a ")[4:] == ["drawn", "4", "", "[csv](FG-F2a.csv) [svg](FG-F2a.svg)"]
    assert cells(text, "| FG-I1 ")[4:6] == ["drawn", "–"]
    assert cells(text, "| FG-F8 ")[4] == "not yet"
    assert sum(text.count(f"\n| {row} ") for row in ("FG-T1", "FG-F2a", "FG-F8", "FG-X3")) == 4
    assert "](FG-F2a.svg)" in text and "](FG-T1.svg)" not in text


def test_a_caption_stands_under_each_picture(folder: Path) -> None:
    """Under the picture stand the ID, the files, the runs and the command; equal numbers refer to the picture."""
    curve = pd.read_csv(folder / "fedgat" / "FG-F2a.csv")
    files.save("fedgat", "FG-F6a", curve, folder=folder)
    report.write(folder)
    text = (folder / "fedgat" / "README.md").read_text()
    shown = text.index(
        "](FG-F2a.svg)\n\nFG-F2a. Files: [csv](FG-F2a.csv) [svg](FG-F2a.svg). Runs behind each number: 4."
    )
    assert "Drawn by `fedrepro run fedgat/6-experiments` (" in text[shown : shown + 200]
    assert "FG-F6a. Files: [csv](FG-F6a.csv). Runs behind each number: 4. The picture is that of FG-F2a" in text


def test_a_caption_names_the_graphs(folder: Path) -> None:
    """A title is the paper's, and the graphs that were run may be others."""
    report.write(folder)
    assert "FG-T1. Files: [csv](FG-T1.csv). Graphs: Cora, CiteSeer, PubMed. Runs behind" in page(folder)


def test_tables_are_rendered(folder: Path) -> None:
    """Claims and deviations stand as Markdown tables, their bars and line breaks harmless."""
    report.write(folder)
    text = (folder / "fedgat" / "README.md").read_text()
    assert "| FG-C1 | near GAT \\| always | means | holds in part |" in text
    assert "<summary>FG-C1, holds in part</summary>\n\n- 0.80 against 0.81\n" in text
    assert "## Where we deviate" in text
    assert "## Theorems and identities" not in text
    assert "| &lt; 1e-12 |" in text
    assert "## Beyond the paper" in text and "### FG-T1-literal: " in text


@pytest.mark.parametrize(
    ("evidence", "head", "listed"),
    [
        (
            "1 shown, 0 contradicted, 0 undecided, in points: Cora +1; over: all",
            ": 1 shown, 0 contradicted, 0 undecided, in points",
            2,
        ),
        ("L1 holds; 1 shown, 0 contradicted, 0 undecided: Cora", ": L1 holds; 1 shown, 0 contradicted, 0 undecided", 1),
        ("matrix: 3 of 3 nodes; vector: 2 of 3 nodes", "", 2),
        ("2 shown, 0 contradicted, 1 undecided of 3 pairs; above: Local 2", "", 2),
    ],
    ids=["parts", "checks and parts", "a finding", "a count of pairs"],
)
def test_the_counts_of_a_claim_stand_above_its_parts(folder: Path, evidence: str, head: str, listed: int) -> None:
    """Only counts of parts are taken out of the evidence; a colon inside a finding does not cut it in two."""
    row = ["FG-C1", "fedgat", "near", "means", evidence, "fails"]
    columns = ["id", "paper", "claim", "check", "evidence", "verdict"]
    files.save("fedgat", "claims", pd.DataFrame([row], columns=columns), folder=folder)
    report.write(folder)
    (told,) = re.findall(r"<summary>FG-C1, fails(.*?)</summary>(.*?)</details>", page(folder), re.DOTALL)
    assert told[0] == head and told[1].count("\n- ") == listed
    assert evidence.endswith(told[1].strip().rpartition("- ")[2])


def test_summary_counts_only_exhibits_of_the_list(folder: Path) -> None:
    """The summary counts three drawn exhibits of 165, and a table beyond the paper adds nothing."""
    report.write(folder)
    text = (folder / "README.md").read_text()
    assert cells(text, "| [FedGAT]") == ["[FedGAT](fedgat/README.md)", "3", "39", "0-10", "0 of 0"]
    assert cells(text, "| [Feras]") == ["[Feras](feras/README.md)", "0", "23", "–", "0 of 0"]
    assert "Drawn: 3 of the 165 exhibits of the papers." in text
    assert "| FedGAT | 0 | 0 | 1 | 0 | 0 | 0 | 0 |" in text
    assert "[The engine of the suite](engine/README.md)" in text


def test_a_paper_is_told_in_three_lines_and_the_statistics_are_folded(tmp_path: Path) -> None:
    """The verdict stands first on both pages, and where no number could be tested the graphs without runs are named."""
    columns = {"dataset": ["PPI", "PPI"], "method": "Feras", "published_mean": [0.9, 0.8], "verdict": "not tested"}
    table = pd.DataFrame(columns | {"clients": [3, 5], "published": "0.9", "why": "not measured", "runs": 0})
    lacking = ["partition", "setting", "ours_mean", "difference", "half90", "half95", "provenance"]
    files.save("feras", "FR-T2", table.assign(**dict.fromkeys(lacking)), folder=tmp_path)
    report.write(tmp_path)
    for text in ((tmp_path / "README.md").read_text(), (tmp_path / "feras" / "README.md").read_text()):
        verdict = text.index(
            "- **No number could be tested.** Among the printed ones, 2 were not measured here. We have no"
        )
        lines = text[verdict:].splitlines()
        assert lines[2] == "What we learned:" and lines[4].startswith("- No printed number could be tested")
        assert lines[9].startswith("<details><summary>The statistics behind it")
    assert cells((tmp_path / "README.md").read_text(), "| [Feras]")[4] == "0 of 2 (no run on PPI)"


@pytest.mark.parametrize("paper", exhibits.papers())
def test_every_claim_is_judged_in_a_notebook(paper: str) -> None:
    """A claim that no notebook asks for would be on no page."""
    judged = files.read(paths.root() / "figures" / paper / "claims.csv")["id"]
    assert {*judged} == {one.id for one in getattr(exhibits.paper_module(paper), "CLAIMS", ())}


@pytest.mark.parametrize("paper", exhibits.papers())
def test_what_was_learned_names_what_shows_it(paper: str) -> None:
    """Its IDs are exhibits, claims, checks or deviations, and no measured number is typed."""
    known = {*exhibits.registered(), *(one.id for one in getattr(exhibits.paper_module(paper), "CLAIMS", ()))}
    known |= {*exhibits.deviations(paper)["id"], *files.read(paths.root() / "figures" / paper / "checks.csv")["id"]}
    learned = exhibits.study(paper).learned
    assert len(learned) >= 3
    for text in learned:
        assert {*ID.findall(text)} <= known, text
        assert not re.search(r"\d", NUMBERED.sub("", ID.sub("", text))), text


def test_checks_and_controls_are_counted_in_words(tmp_path: Path) -> None:
    """A control that fails is no failure of the check beside it, and the verb has the number of its subject."""
    found = ["fails, as it must", "holds", "holds", "fails, as it must", "rebuilt"]
    files.save("fedgat", "FG-A1", pd.DataFrame({"verdict": found}), folder=tmp_path)
    report.write(tmp_path)
    assert cells(page(tmp_path), "| FG-A1 ")[6] == "2 hold; 2 controls fail, as they must; 1 rebuilt"


def test_names_are_in_natural_order_and_long_tables_are_folded(tmp_path: Path) -> None:
    """AX-2 stands before AX-10; of a table of 25 rows five are folded, and an exhibit's are left to its file."""
    for name in ("AX-10", "AX-2", "AX-1"):
        files.save("across", name, pd.DataFrame({"runs": [3] * 25}), folder=tmp_path)
    rows = {"id": [f"A-{n}" for n in range(25)], "verdict": "holds"}
    files.save("fedgat", "checks", pd.DataFrame(rows), folder=tmp_path)
    report.write(tmp_path)
    across = (tmp_path / "across" / "README.md").read_text()
    assert re.findall("### (AX-[0-9]+)", across) == ["AX-1", "AX-2", "AX-10"] and "Numbers" not in across
    shown, _, rest = page(tmp_path).partition("<details><summary>The other 5 rows</summary>")
    assert shown.count("| A-") == 20 and rest.partition("</details>")[0].count("| A-") == 5


def test_a_file_without_rows_is_not_drawn(folder: Path) -> None:
    """An exhibit whose file has a heading alone is not counted as drawn, and its page says that it has no numbers."""
    files.save("fedgat", "FG-F3a", pd.DataFrame(columns=["clients", "scalars"]), folder=folder)
    report.write(folder)
    assert "Drawn: 3 of 39 exhibits." in page(folder) and cells(page(folder), "| FG-F3a ")[4] == "not yet"
    assert "FG-F3a. Files: [csv](FG-F3a.csv). It has no numbers yet." in page(folder)
    assert cells((folder / "README.md").read_text(), "| [FedGAT]")[1:3] == ["3", "39"]


def test_a_form_of_an_exhibit_has_its_title(folder: Path) -> None:
    """A file named after an exhibit, with words behind its ID, has the exhibit's title, or that of a known view."""
    for name in ("FG-T1-by-reading", "FG-T1-literal-or-not"):
        files.save("fedgat", name, pd.DataFrame({"runs": [1]}), folder=folder)
    report.write(folder)
    assert "### FG-T1-literal-or-not: " in page(folder)
    assert "### FG-T1-by-reading: Every reading that was run" in page(folder)


def test_what_was_not_published_has_no_verdict(tmp_path: Path) -> None:
    """Cells without a published number, in a table that compares with some, are not counted; ours have their titles."""
    rows = {"verdict": ["differs", "not tested"], "published_mean": [0.5, None], "runs": [3, 3]}
    files.save("fedsheafhn", "SH-T4", pd.DataFrame(rows), folder=tmp_path)
    files.save("fedsheafhn", "SH-M1", pd.DataFrame({"runs": [1]}), folder=tmp_path)
    report.write(tmp_path)
    text = (tmp_path / "fedsheafhn" / "README.md").read_text()
    assert cells(text, "| SH-T4 ")[6] == "1 differs"
    assert "### SH-M1: What choosing the round on test nodes adds" in text


def test_links_lead_somewhere(folder: Path) -> None:
    """Every relative link of every page is a file that exists."""
    import re

    for page in report.write(folder):
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), (page, target)


def test_writing_again_changes_nothing(folder: Path) -> None:
    """The pages depend on the files alone, not on the pages themselves nor on the time."""
    first = {path: path.read_bytes() for path in report.write(folder)}
    assert {path: path.read_bytes() for path in report.write(folder)} == first


def test_an_empty_folder_is_all_not_yet(tmp_path: Path) -> None:
    """Without any file, all 165 exhibits are listed as not yet drawn."""
    pages = report.write(tmp_path / "figures")
    assert sum(page.read_text().count("| not yet |") for page in pages) == 165
    assert "Drawn: 0 of the 165 exhibits of the papers." in (tmp_path / "figures" / "README.md").read_text()
