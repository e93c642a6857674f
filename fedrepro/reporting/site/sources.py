"""Write the sources of the site's pages: Markdown, reStructuredText and notebooks in one folder, for Sphinx."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from fedrepro import paths
from fedrepro.paths import replace_file
from fedrepro.reporting import exhibits, files, notebook, reading
from fedrepro.reporting.site import copies, explorer
from fedrepro.runs import provenance

PAGES = Path(__file__).parent / "pages"
NAMES = {"engine": "The suite itself", "across": "All methods under one protocol"}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
PLAIN = re.compile(r"[\w.~-]+")  # names of files in which nothing is markup
HEADING = re.compile(r"^#+ ([A-Z]{2,3}-[\w-]+).*", re.MULTILINE)


class Sources:
    """A folder of generated files. A file whose content stays is left alone, so that Sphinx need not read it again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: set[Path] = set()
        self.renewed = False  # whether a page is gone or a reference changed, of which Sphinx would leave traces
        self.anchors: set[str] = set()  # the IDs of exhibits that a page can link to

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file unless it is there already; return its absolute name in the site."""
        path = self.folder / name
        new = content.encode() if isinstance(content, str) else content
        if not path.is_file() or path.read_bytes() != new:
            self.renewed |= path.is_file() and path.suffix == ".rst"
            replace_file(path, new)
        self.kept.add(path)
        return f"/{name}"

    def copy(self, path: Path, name: str) -> str:
        """Copy a file unless it is there already; return its absolute name in the site."""
        return self.write(name, path.read_bytes())

    def prune(self) -> None:
        """Remove the files that were not written this time."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.kept:
                self.renewed |= not path.is_relative_to(self.folder / "files")
                path.unlink()


def write(folder: Path, profile: str = "") -> Sources:
    """Write the sources of all pages.

    Args:
        folder: where they go.
        profile: `smoke` for the notebooks of the smoke runs, otherwise the real ones.
    """
    sources = Sources(folder)
    figures = paths.figures()
    all_notebooks = notebooks()
    names = exhibits.papers()
    others = sorted({source.paper for source in all_notebooks} - set(names))
    for paper in [*names, *others]:
        _paper(sources, figures, paper, [source for source in all_notebooks if source.paper == paper], profile)
    solved = [(source, text) for source in all_notebooks if (text := copies.solutions(_json(source.path)))]
    if solved:
        parts = [
            f"## [{one.title}](/notebooks/{one.name}.ipynb)\n\n{_linked(sources, one.path.parent, text)}\n"
            for one, text in solved
        ]
        sources.write("solutions.md", "\n".join(["# Solutions\n", *parts]))
    listed = [f"papers/{paper}" for paper in [*names, *others]]
    sources.write("papers/index.md", _page("papers.md", pages=_toctree(f"/{name}" for name in listed)))
    sources.write(
        "index.md", _page("index.md", answers=answers(sources, figures).replace("\n#", "\n##").replace("# ", "## ", 1))
    )
    sources.write("explorer.md", _page("explorer.md", data=explorer.data(figures, sources.anchors)))
    sources.write("ids.md", _page("ids.md", kinds=_kinds(), ids=_ids(sources.anchors)))
    sources.write("downloads.md", _page("downloads.md", notebooks=_downloads(all_notebooks)))
    sources.copy(PAGES / "glossary.md", "glossary.md")
    further = [path for path in sorted(figures.glob("*.md")) if path.name != "README.md" and PLAIN.fullmatch(path.stem)]
    for path in further:
        sources.write(f"{path.stem.lower()}.md", markdown(sources, path))
    pages = ["/ids", "/glossary", "/api/index", "/downloads", *(["/solutions"] if solved else [])]
    pages += [f"/{path.stem.lower()}" for path in further]
    sources.write("reference.md", _page("reference.md", pages=_toctree(pages)))
    _api(sources)
    sources.prune()
    return sources


def notebooks() -> list[notebook.Source]:
    """Return the notebooks in the order of the papers. A file whose name a page could take for markup is left out."""
    order = [*exhibits.papers()]
    known = notebook.find(paths.root() / "notebooks")
    found = [one for one in known if PLAIN.fullmatch(one.paper) and PLAIN.fullmatch(one.section)]
    return sorted(found, key=lambda one: order.index(one.paper) if one.paper in order else len(order))


def answers(sources: Sources, figures: Path) -> str:
    """Return what the start page says of each paper, which is the generated page above the galleries."""
    return markdown(sources, figures / "README.md") or "# What came out\n\nNothing is drawn yet: run `make all`.\n"


def markdown(sources: Sources, path: Path) -> str:
    """Return a generated page of `figures/` as a page of the site; empty if there is no such page.

    Its links to files of the repository become links to pages of the site, or to copies of the files. A heading that
    starts with an exhibit's ID can be linked to by the ID, and the notebook and the command that make it follow.
    """
    if not path.is_file():
        return ""
    text = re.sub(r"^Generated by .*\n+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"(?<!\\)\$", r"\\$", text)
    text = _linked(sources, path.parent, text)
    text = re.sub(r"\[([^\]]*)\]\(py:([\w.]+)\)", r"{py:mod}`\1 <\2>`", text)
    paper = path.parent.name
    at = provenance.commit()
    built = f" This page was built at commit {at}." if at else ""
    homes = {row["id"]: f"{paper}/{row['notebook']}" for row in _listed(paper)}

    def headed(heading: re.Match[str]) -> str:
        home = homes.get(heading[1]) or homes.get(heading[1].rpartition("-")[0])
        later = (
            heading[0].endswith(heading[1]) and f"# {heading[1]}, " in text
        )  # the name belongs to the heading with a title
        if not home or later or heading[1] in sources.anchors:
            return heading[0]
        sources.anchors.add(heading[1])
        pointer = f"[Notebook](/notebooks/{home}.ipynb). Recompute: `{explorer.command(home)}`.{built}"
        return f"({heading[1].lower()})=\n{heading[0]}\n\n{pointer}"

    return HEADING.sub(headed, text)


def _linked(sources: Sources, folder: Path, text: str) -> str:
    """Return Markdown of a file in `folder` with its links as those of the site."""
    return LINK.sub(lambda found: _target(sources, folder, found[1]), text)


def _target(sources: Sources, folder: Path, link: str) -> str:
    """Return what a link of a page in `folder` becomes in the site; `py:module` for a module of the package."""
    path = Path(os.path.normpath(folder / unquote(link)))
    root = paths.root()
    places = (root / "figures", folder, folder.parent)  # of notebooks, of the page above the papers, of a paper
    figures = next((one for one in places if path.is_relative_to(one) and (one / "fedgat").is_dir()), places[0])
    if re.match(r"[a-z]+:|#", link) or not path.is_file():
        return link
    if path.name == "README.md" and path.is_relative_to(figures):
        return "/index.md" if path.parent == figures else f"/papers/{quote(path.parent.name)}.md"
    if path.name == reading.FILE:
        return f"/reading/{path.parent.name}.md"
    if path.suffix == ".md" and path.parent == figures:
        return f"/{quote(path.stem.lower())}.md"
    if path.suffix == ".md" and path.is_relative_to(figures):
        return quote(_single(sources, path, path.relative_to(figures).as_posix().lower()))
    if path.suffix == ".ipynb":
        return quote(f"/notebooks/{path.parent.name}/{path.name}")
    if path.suffix == ".py" and path.is_relative_to(root / "fedrepro"):
        return f"py:{'.'.join(path.relative_to(root).with_suffix('').parts).removesuffix('.__init__')}"
    base = figures if path.is_relative_to(figures) else root
    return quote(sources.copy(path, f"files/{path.relative_to(base)}"))


def _single(sources: Sources, path: Path, name: str) -> str:
    """Write a generated page that no table of contents has, unless it is written; return its name in the site."""
    if sources.folder / name not in sources.kept:
        sources.kept.add(sources.folder / name)  # now, since it may link to itself
        sources.write(name, f"---\norphan: true\n---\n\n{markdown(sources, path)}")
    return f"/{name}"


def _paper(sources: Sources, figures: Path, paper: str, of_paper: list[notebook.Source], profile: str) -> None:
    """Write a paper's gallery, its reading page and its notebooks."""
    gallery = markdown(sources, figures / paper / "README.md")
    guide = markdown(sources, figures / paper / reading.FILE)
    below = [f"/reading/{paper}"] if guide else []
    if guide:
        sources.write(f"reading/{paper}.md", guide)
    for source in of_paper:
        _notebook(sources, source, profile)
        below.append(f"/notebooks/{source.name}")
    title = exhibits.papers().get(paper) or NAMES.get(paper, paper)
    body = gallery.partition("\n")[2] or "\nNothing is drawn yet: run `make all`.\n"
    sources.write(f"papers/{paper}.md", f"# {title}\n\n{_toctree(below)}{body}")


def _notebook(sources: Sources, source: notebook.Source, profile: str) -> None:
    """Write a notebook's page, and its copies for downloading: as it was run, and for students."""
    executed = notebook.executed_copy(source, profile)
    shown = _json(executed if executed.is_file() else source.path)
    whole = sources.write(f"files/notebooks/{source.name}.ipynb", json.dumps(_json(source.path), indent=1))
    young = json.dumps(copies.student(_json(source.path)), indent=1, ensure_ascii=False)
    student = sources.write(f"files/students/{source.paper}-{source.section}-student.ipynb", young)
    links = f"Download: {{download}}`the notebook <{whole}>`, {{download}}`a version for students <{student}>`."
    if not executed.is_file():
        links += "\n\n```{note}\nThis notebook was not run before the site was built. Run `make all`.\n```"
    titles = {row["id"]: row["title"] for row in _listed(source.paper)}
    page = copies.page(shown, links, titles)
    for cell in page["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(lambda found: _page_link(sources, source, found[1]), copies.text(cell))
    sources.write(f"notebooks/{source.name}.ipynb", json.dumps(page, indent=1, ensure_ascii=False))


def _page_link(sources: Sources, source: notebook.Source, link: str) -> str:
    """Return a notebook's link to a file of the repository as a link of the site; others, as to notebooks, stay."""
    return link if link.endswith((".ipynb", ".py")) else _target(sources, source.path.parent, link)


def _listed(paper: str) -> list[dict[str, str]]:
    return exhibits.listed(paper) if paper in exhibits.folders() else []


def _json(path: Path) -> copies.Notebook:
    content: copies.Notebook = json.loads(path.read_text(encoding="utf-8"))
    return content


def _page(name: str, **parts: str) -> str:
    """Return a committed page with `<<part>>` replaced by its text."""
    text = (PAGES / name).read_text(encoding="utf-8")
    for part, content in parts.items():
        text = text.replace(f"<<{part}>>", content)
    return text


def _toctree(names: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```", ""])


def _downloads(found: list[notebook.Source]) -> str:
    lines = ["| notebook | as it is | for students |", "|---|---|---|"]
    for one in found:
        pair = (f"files/notebooks/{one.name}.ipynb", f"files/students/{one.paper}-{one.section}-student.ipynb")
        links = " | ".join(f"{{download}}`{Path(path).name} </{path}>`" for path in pair)
        lines.append(f"| [{one.title}](/notebooks/{one.name}.ipynb) | {links} |")
    return "\n".join(lines)


def _kinds() -> str:
    """Return what README.md says about IDs."""
    text = (paths.root() / "README.md").read_text(encoding="utf-8")
    return text.partition("## What an ID means\n")[2].partition("\n## ")[0].strip()


def _ids(anchors: set[str]) -> str:
    """Return the table of all IDs as HTML rows: exhibits, and the decisions and deviations of each paper."""
    lines = []
    for paper in exhibits.folders():
        name = exhibits.papers().get(paper) or NAMES.get(paper, paper)
        for row in exhibits.listed(paper):
            id_ = f"[{row['id']}](#{row['id'].lower()})" if row["id"] in anchors else row["id"]
            link = f"[{row['notebook']}](/notebooks/{paper}/{row['notebook']}.ipynb)"
            lines.append([id_, name, row["label"] or row["kind"], files.plain(row["title"]), link])
        if paper in exhibits.papers():
            for row in exhibits.deviations(paper).to_dict("records"):
                said, done = files.plain(row["what the paper says"]), files.plain(row["what we do"])
                link = f"[Where we deviate](/papers/{paper}.md)"
                lines.append([str(row["id"]), name, "decision", f"The paper: {said} We: {done}", link])
    head = ["| ID | paper | kind | what | where |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def _api(sources: Sources) -> None:
    """Write the reference: one page for each package, with the modules in it."""
    package = paths.root() / "fedrepro"
    names = []
    for init in sorted(package.rglob("__init__.py")):
        name = ".".join(init.parent.relative_to(package.parent).parts)
        modules = [f"{name}.{path.stem}" for path in sorted(init.parent.glob("*.py")) if path.stem[0] != "_"]
        if "exhibits" in name.split("."):  # grids and tables behind the notebooks, which no reader calls
            continue
        parts = [_title(name, "="), f".. automodule:: {name}\n"]
        parts += [
            f"{_title(one, '-')}\n.. automodule:: {one}\n   :members:\n   :show-inheritance:\n" for one in modules
        ]
        sources.write(f"api/{name}.rst", "\n".join(parts))
        names.append(f"/api/{name}")
    sources.write("api/index.md", _page("api.md", pages=_toctree(names)))


def _title(name: str, line: str) -> str:
    return f"{name}\n{line * len(name)}\n"
