"""Text that is markup somewhere is planted wherever text comes from, and is text wherever it is shown."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from markdown_it import MarkdownIt

import fedrepro as fr
from fedrepro import cli, paths, registry
from fedrepro.errors import StoreError
from fedrepro.reporting import answer, exhibits, files, layout, outcome, reading, report, session, terminal
from fedrepro.reporting.site import explorer, sources
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

HOSTILE = (
    "](javascript:alert(1))",
    "[here](javascript:alert(2))",
    "![here](x.svg)[there][else]",
    "[else]: javascript:alert(3)",
    "<script>alert(4)</script>",
    "<img src=x onerror=alert(5)>",
    "<a href='javascript:alert(6)'>x</a>",
    "<javascript:alert(7)>",
    "&lt;script&gt;alert(8)",
    "one | two | three",
    "one \\| two \\](javascript:alert(9))",
    "first\n\n<script>alert(10)</script>\n\n# heading",
    "```{raw} html\n<script>alert(11)</script>\n```",
    "{raw}`html` and `code",
    "~~~{raw} html\n<script>alert(12)</script>\n~~~",
    "$\\href{javascript:alert(13)}{x}$",
    "# heading",
    "(target)=",
    "% nothing",
    "1. first",
    "- </details></summary></td></table>",
    "_slanted_ ~gone~ *slanted*",
    "</script><script>alert(14)</script><!--<script>",
)
TERMINAL = "[red]no colour[/red] [link=javascript:alert(15)]x[/link] \x1b[31mred\x1b]8;;http://x\x07 \x9b31m"
TAGS = {
    "h1", "h2", "h3", "p", "ul", "ol", "li", "a", "img", "table", "thead", "tbody", "tr", "th", "td", "strong", "em",
    "code", "pre", "details", "summary", "br", "style", "div",
}  # fmt: skip
ATTRIBUTES = {"href", "src", "alt", "class", "id", "border", "style", "type", "title"}
PAPER, TABLE = "fedstruct", "FS-T6"


class Page(HTMLParser):
    """The tags, links and text of a page; anything that could run fails."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, (tag, attrs)
        given = dict(attrs)
        assert {name for name in given if not name.startswith("data-")} <= ATTRIBUTES, (tag, attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment hides what follows: {data}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def render(markdown: str) -> Page:
    """Render a page as GitHub would, but with links to anywhere."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda link: True  # type: ignore[method-assign]
    page = Page(parser.render(markdown))
    assert not [link for link in page.links if re.match(r"\W*(javascript|data|vbscript)", link, re.IGNORECASE)]
    return page


def tables(markdown: str) -> Iterator[list[int]]:
    """Yield the number of cells in each row of each table."""
    for block in re.split(r"\n(?!\|)", markdown):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        if rows:
            yield [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows]


def flat(text: str) -> str:
    return " ".join(text.split())


def write_csv(path: Path, columns: list[str], rows: list[Mapping[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def everywhere(columns: list[str], **fixed: str) -> list[Mapping[str, str]]:
    """One row for each hostile text, in every column but the ones that must hold something else."""
    return [{name: fixed.get(name, text) for name in columns} for text in HOSTILE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures with hostile text in every column that holds text, and in the names of folders, files and columns."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("fedrepro", "tests", "README.md"):
        (root / name).symlink_to(paths.root() / name)
    book = {"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title\n"}], "metadata": {}}
    for name in ("gfl/4-theory", "gfl/x](javascript:alert(1))", "<img src=x onerror=alert(1)>/1-x"):
        path = root / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(book | {"nbformat": 4, "nbformat_minor": 5}))
    figures = root / "figures"
    numbers = dict.fromkeys(answer.NUMBERS, "1")
    text = ["exhibit", "dataset", "method", "clients", "partition", "setting", "metric", "published", "verdict", "why"]
    text += ["provenance", "reading", "if_kept"]
    write_csv(figures / PAPER / f"{TABLE}.csv", [*text, *numbers, *HOSTILE[:2]], everywhere([*text, *HOSTILE[:2]]))
    rows = [{**row, **numbers} for row in everywhere([*text, *HOSTILE[:2]], verdict="not tested")]
    rows += [{**row, **numbers} for row in everywhere([*text, *HOSTILE[:2]])]
    write_csv(figures / PAPER / f"{TABLE}.csv", [*text, *numbers, *HOSTILE[:2]], rows)
    leads = ["dataset", "clients", "partition", "over", "verdict", "why", "printed_lead", "our_lead"]
    write_csv(figures / PAPER / f"{TABLE}-effects.csv", leads, everywhere(leads, printed_lead="1", our_lead="1"))
    causes = ["exhibit", "dataset", "method", "clients", "partition", "setting", "published", "difference", "verdict"]
    causes += ["readings run", "cause"]
    write_csv(figures / PAPER / f"{TABLE}-causes.csv", causes, everywhere(causes))
    cell = ["exhibit", "dataset", "method", "clients", "partition", "setting", "metric"]
    readings = [*cell, "reading", "kind", "fixed", "verdict", "explains", "open"]
    write_csv(figures / PAPER / f"{TABLE}-by-reading.csv", readings, everywhere(readings))
    for kind, columns in session.COLUMNS.items():
        write_csv(figures / PAPER / f"{kind}.csv", list(columns), everywhere(list(columns)))
    for name in (*HOSTILE[:10], "x\n# heading\n<script>alert(1)</script>"):
        safe = name.replace("/", "÷")
        for home in (PAPER, safe):
            write_csv(
                figures / home / f"{safe}.csv", ["dataset", "method", name], everywhere(["dataset", "method", name])
            )
            (figures / home / f"{safe}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        (figures / f"{safe}.md").write_text("# Title\n")
    report.write(figures)
    for path in figures.glob(f"*/{reading.FILE}"):
        path.unlink()  # its links lead into this checkout, and it is made from docstrings
    return figures


def test_the_gallery_shows_text_as_text(folder: Path) -> None:
    """No page has a tag, an attribute, a link or a broken row that was planted, and each planted text can be read."""
    pages = [path for path in folder.rglob("*.md") if path.name in ("README.md", report.RULE)]
    assert len(pages) > 15
    for path in pages:
        markdown = path.read_text()
        page = render(markdown)
        assert all(len(set(counts)) == 1 for counts in tables(markdown)), path
        missing = [link for link in page.links if not (path.parent / unquote(link)).exists()]
        assert set(missing) <= {reading.FILE}, path
        if path.parent.name == PAPER and path.name == "README.md":
            shown = flat("".join(page.text))
            assert [text for text in HOSTILE if flat(text) not in shown] == []


def test_the_site_is_written_without_what_was_planted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site's pages have no planted tag, link, role or mathematics, and their names are plain."""
    monkeypatch.setattr(paths, "root", lambda: folder.parent)
    monkeypatch.setenv("FEDREPRO_FIGURES", str(folder))
    made = sources.write(tmp_path / "s")
    pages = [path for path in made.kept if path.suffix in (".md", ".rst") and "api" not in path.parts]
    assert {"index.md", "ids.md", f"{PAPER}.md"} <= {path.name for path in pages}
    for path in pages:
        assert re.fullmatch(r"[\w.~/-]+", str(path.relative_to(tmp_path))), path
        markdown = path.read_text()
        if path.parent.name != "papers" and path.name != "index.md":
            assert "alert(" not in markdown or path.name == "explorer.md", path
            continue
        text = re.sub(r"^```\{toctree\}.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
        render(text)
        # what is folded has its heading in HTML, where neither roles nor mathematics are read
        planted = [line for line in text.splitlines() if re.search(r"^(?!<details>).*(alert\(|\{raw)", line)]
        assert planted or path.stem != PAPER
        others = [re.sub(r"`fedrepro (?:run|show) [\w/.-]+`", "", line) for line in planted]  # not the page's commands
        assert [line for line in others if re.search(r"(?<!\\)(?:\\\\)*[`$]", line)] == []


def test_the_explorers_data_closes_no_script(folder: Path) -> None:
    """The data is one script of JSON, whatever a table holds, and comes out of the page as it went in."""

    class Scripts(HTMLParser):
        content: str = ""
        tags = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags += 1

        def handle_data(self, data: str) -> None:
            self.content += data

    text = explorer.data(folder, {TABLE})
    page = Scripts()
    page.feed(f'<script type="application/json">{text}</script>')
    assert page.tags == 1 and "<" not in text and "\n" not in text
    data = json.loads(page.content)
    words = {row[data["columns"].index("why")] for row in data["rows"]}
    assert set(HOSTILE) <= words


@pytest.mark.parametrize("text", [*HOSTILE, TERMINAL])
def test_tables_in_a_notebook_show_text_as_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames, styled frames, folded ones and lists show what a store holds as text, also in headings and labels."""
    frame = pd.DataFrame({"id": [text], "claim": [text], "verdict": [text], text: [0.5]}, index=[text])
    shell = _shell(monkeypatch)
    for shown in (frame, frame.style, frame.style.hide(axis="index").format(precision=1), outcome.folded(frame, text)):
        html = shell.display_formatter.format(shown)[0]["text/html"]
        page = Page(re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL))
        assert flat(text) in flat("".join(page.text).replace("\\n", " "))
    for sentence in outcome.sentences(frame):
        assert flat(text).rstrip(".") in flat("".join(render(f"- {sentence}").text))
    table = pd.DataFrame([[text]], index=pd.Index([text], name="method"), columns=[text])
    assert set(next(tables(layout.markdown(table)))) == {3}
    render(layout.markdown(table))


def _shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Begin a notebook in a shell that only displays."""
    import IPython
    from IPython.core.formatters import DisplayFormatter

    shell = SimpleNamespace(
        config=SimpleNamespace(InlineBackend=SimpleNamespace()), display_formatter=DisplayFormatter()
    )
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    assert IPython.get_ipython() is shell
    fr.begin("fedgat/6-x", profile="quick", device="cpu")
    return shell


@pytest.mark.parametrize("text", [*HOSTILE, TERMINAL])
def test_a_record_in_a_terminal_is_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A method's name, an option and an error are printed as they are, but for characters that steer a terminal."""
    registry.register("check", text, _refuses)
    run = Run("check", text, text, options={"text": text})
    fr.begin("mine/x", profile="quick", device="cpu").execute([run])
    told = capsys.readouterr().out
    store = Store(paths.personal())
    record = {"key": "ab" * 32, "status": "ok", "run": run.to_dict(), "result": {"text": text}}
    store.append("a", record | {"fingerprint": "cd" * 32, "when": "2026-01-01T00:00:00+00:00"})
    assert cli.main(["show", "ab" * 8]) == 0
    told += capsys.readouterr().out
    terminal.frame(pd.DataFrame({"a": [text, text], "b": [text, "x"], text: [1, 2]}))
    terminal.table([text], [[text]])
    told += capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told)
    plain = re.sub(r"\s", "", terminal.shown(text))
    assert re.sub(r"\s", "", told).count(plain) >= 3


def _refuses(run: Run) -> dict[str, Any]:
    raise ValueError(run.method)


def test_a_table_in_latex_is_text() -> None:
    """No character of LaTeX is left in a table but those of the table itself."""
    whole = pd.DataFrame([["\\input{x} ^2 a_b & c % $x$\nnew"]], index=pd.Index(["m"], name="method"), columns=["c"])
    row = next(line for line in layout.latex(whole).splitlines() if line.startswith("m &"))
    assert row == r"m & \textbackslash{}input\{x\} \textasciicircum{}2 a\_b \& c \% \$x\$ new \\"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("FG-F1", "runs\nmany\n", ("FG-F1.csv", "runs", "whole numbers", "'many'")),
        ("FG-F1", "runs\ninf\n", ("FG-F1.csv", "runs", "whole numbers", "'inf'")),
        ("FG-F1", "runs\n1.5\n", ("FG-F1.csv", "runs", "whole numbers", "'1.5'")),
        ("FG-F1", 'a\n"open', ("FG-F1.csv", "Cannot read")),
        ("FG-T1", "published_mean,ours_mean\n0.5,high\n", ("FG-T1.csv", "ours_mean", "numbers", "'high'")),
        ("FG-T1-effects", "printed_lead,our_lead\n1,far\n", ("FG-T1-effects.csv", "our_lead", "numbers", "'far'")),
        ("claims", "id,claim,verdict\nFG-C1,x,holds\n", ("claims.csv", "evidence", "lacks")),
        ("claims", "id,claim,evidence\nFG-C1,x,y\n", ("claims.csv", "verdict", "lacks")),
        ("FG-T1-causes", "dataset\nCora\n", ("FG-T1-causes.csv", "cause", "lacks")),
    ],
)
def test_a_table_that_is_none_is_named(tmp_path: Path, name: str, content: str, words: tuple[str, ...]) -> None:
    """A number that is none, or a column that is missing, is an error with the file, the column and the value."""
    (tmp_path / "fedgat").mkdir()
    (tmp_path / "fedgat" / f"{name}.csv").write_text(content)
    with pytest.raises(StoreError) as error:
        report.write(tmp_path)
    assert all(word in str(error.value) for word in words), error.value
    assert exhibits.papers()  # the list of papers itself needs no figures


def test_what_is_no_markup_stays() -> None:
    """Names and numbers of tables are written as they are, and Markdown is escaped once."""
    for text in (
        "ours_mean",
        "-0.38",
        "[-0.9, +0.0]",
        "(Fed*)",
        "**Bytes.** 70",
        "< 1e-12".replace("<", "at most"),
        "a & b",
    ):
        assert files.plain(text) == text
    assert files.plain(files.plain("a|b")) == "a\\|b" and files.link("x", "a b.csv") == "[x](a%20b.csv)"
