"""Turn docstrings, which are plain text, into the markup that Sphinx reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import document

SECTION = re.compile(r"(Args|Returns|Raises|Yields):$")
COLUMNS = re.compile(r"\S {3,}\S")  # a line of a table
_MARKUP = re.compile(r"(?<!`)(`+)([^`]*)`+|[\\*|]|(?<=\w)_(?!\w)")


def escaped(text: str) -> str:
    """Return a text in which quoted names are literals and no other character is markup."""
    return _MARKUP.sub(lambda found: f"``{found[2]}``" if found[1] else f"\\{found[0]}", text)


def marked_up(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText.

    An indented block, such as an equation, an algorithm or a table of symbols, keeps its line breaks, as a table does.
    The sections Args, Returns, Raises and Yields stay as they are, for Sphinx's napoleon.
    """
    blocks: list[tuple[bool, list[str]]] = [(False, [])]  # whether a block keeps its line breaks, and its lines
    section = False
    for line in lines:
        literal, block = blocks[-1]
        if not section and COLUMNS.search(line) and not line.startswith(" "):
            line = f"    {line}"
        inside = line.startswith(" ")
        if line.strip() and not inside:
            section = SECTION.match(line) is not None
        if line.strip() and literal != (inside and not section):
            blocks.append((not literal, ["::", "", line] if not literal else [line]))
            continue
        if block and block[-1].strip() and ((section and not inside) or line.startswith("- ")):
            block.append("")
        block.append(line)
    result = []
    for literal, block in blocks:
        result += ["", *(block if literal else escaped("\n".join(block)).split("\n"))]
    return result[1:]


def process(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Mark up a docstring in place, for the event `autodoc-process-docstring`."""
    lines[:] = marked_up(lines)


def unlink(app: object, tree: document) -> None:
    """Drop the links to names of other packages, which would be looked for among all names of this one."""
    from sphinx.addnodes import pending_xref

    for node in list(tree.findall(pending_xref)):
        if node.get("refdomain") == "py" and not node["reftarget"].startswith("fedrepro."):
            node.replace_self(node.children)
