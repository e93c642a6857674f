"""Check a page of the site in a browser, and check its links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

# Text that a reader sees, without code, and mathematics that was not set.
LOOK = """async () => {
  if (window.MathJax && MathJax.startup && MathJax.startup.promise) await MathJax.startup.promise;
  const hidden = "code, pre, script, style, noscript, textarea, mjx-container, svg, [type='application/json']";
  const dollars = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.data.includes("$") && !node.parentElement.closest(hidden)) dollars.push(node.data.trim().slice(0, 80));
  }
  const unset = [...document.querySelectorAll(".math")].filter((one) => !one.querySelector("mjx-container"))
    .map((one) => one.textContent.trim().slice(0, 80));
  const wrong = [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map((one) => one.textContent);
  const nameless = [...document.images].filter((one) => one.alt.trim().length < 10 || /\\.(svg|png)$/.test(one.alt))
    .map((one) => one.src);
  const links = [...document.querySelectorAll("a[href]")]
    .map((one) => new URL(one.getAttribute("href"), document.baseURI).href);  // of a link in a picture too
  const formulas = document.querySelectorAll("mjx-container").length;
  return { dollars, unset: [...unset, ...wrong], nameless, links, formulas };
}"""


@dataclass
class Seen:
    """The faults that a browser finds on a page, its links, and how many formulas were set."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dollars: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    formulas: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """Return each kind of fault that was found."""
        kinds = ("errors", "requests", "dollars", "unset", "nameless")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


def visit(context: Any, url: str) -> Seen:
    """Open a page of the disk and return what is wrong with it; nothing that it asks of another host is sent."""
    seen = Seen()
    page = context.new_page()

    def route(asked: Any) -> None:
        if asked.request.url.startswith(("file:", "data:", "blob:")):
            asked.continue_()
        else:
            seen.requests.append(asked.request.url)
            asked.abort()

    page.route("**/*", route)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("console", lambda told: seen.errors.append(told.text) if told.type in ("error", "warning") else None)
    page.goto(url, wait_until="load")
    found = page.evaluate(LOOK)
    seen.dollars, seen.unset, seen.nameless = found["dollars"], found["unset"], found["nameless"]
    seen.links, seen.formulas = found["links"], found["formulas"]
    page.close()
    return seen


class _Links(HTMLParser):
    """Collect the addresses and the names of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.names.add(value or "")


@cache
def parsed(path: Path) -> _Links:
    """Return the links and names of an HTML file."""
    reader = _Links()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def dead(path: Path, links: list[str] | None = None) -> list[str]:
    """Return the links of a page to files of the disk that are not there, or to names that the file does not have.

    Args:
        links: instead of those that the file holds.
    """
    gone = []
    for link in parsed(path).links if links is None else links:
        address, name = urldefrag(link)
        parts = urlsplit(address)
        if parts.scheme not in ("", "file"):
            continue
        place = Path(unquote(parts.path))
        target = path if not parts.path else place if parts.scheme else (path.parent / place).resolve()
        there = target.is_file() or (target / "index.html").is_file()
        known = not name or target.suffix != ".html" or not there or unquote(name) in parsed(target).names
        if not there or not known:
            gone.append(f"{path.name}: {link}")
    return gone


def state(text: str) -> bool:
    """Return whether the fragment of a link is the explorer's state, such as `paper=FedGAT`, and no name."""
    return re.search(r"#\w+=", text) is not None
