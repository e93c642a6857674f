"""The built site in a real browser: `make site-test` runs this, `make test` only the controls that open no page."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import site_checks
from sight import contrast

from fedrepro.reporting.site import build

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser of this machine."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no page was opened")
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip("there is no chromium: no page was opened in a browser")
    with sync.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        opened = driver.chromium.launch(executable_path=executable, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


@pytest.fixture(scope="module")
def site() -> Path:
    """The built site."""
    folder = os.environ.get("FEDREPRO_SITE")
    if not folder:
        pytest.skip("FEDREPRO_SITE names no site: the pages were not checked (make site-test builds and checks them)")
    return Path(folder).resolve()


def pages(site: Path) -> list[Path]:
    """Return the pages that are made for readers.

    The highlighted sources of the package are many and alike. The index of modules has Sphinx's picture of a minus.
    """
    left_out = {"_modules", "_static", "py-modindex.html"}
    return [path for path in sorted(site.rglob("*.html")) if not left_out & set(path.relative_to(site).parts)]


def test_pages_load_without_a_fault(context: Any, site: Path) -> None:
    """No page has an error, asks another host, shows a raw dollar or unset formula, or a picture without a text."""
    faults, formulas = {}, 0
    for path in pages(site):
        seen = site_checks.visit(context, path.as_uri())
        formulas += seen.formulas
        if seen.faults:
            faults[path.relative_to(site).as_posix()] = seen.faults
    assert not faults
    assert formulas > 100


def test_links_are_alive(site: Path) -> None:
    """Every link inside the site leads to a file and a name in it."""
    assert not [line for path in pages(site) for line in site_checks.dead(path)]


def test_links_of_the_explorer_are_alive(context: Any, site: Path) -> None:
    """Every link that the explorer makes leads to a file and a name in it."""
    page = site / "explorer.html"
    links = [link for link in site_checks.visit(context, page.as_uri()).links if not site_checks.state(link)]
    rows = [link for link in links if "#row-" in link]
    assert len(rows) > 100 and len(links) > len(rows)
    assert not site_checks.dead(page, [link for link in links if link not in rows])


def test_links_to_generated_pages_are_links(site: Path) -> None:
    """On the start page and the papers' pages no link names a page that the site lacks, which is shown as mere text."""
    pages = [site / "index.html", *(site / "papers").glob("*.html")]
    assert len(pages) > 5
    assert not [path.name for path in pages if 'class="xref myst"' in path.read_text(encoding="utf-8")]


def test_every_notebook_has_its_outputs(site: Path) -> None:
    """Each notebook's page shows outputs, and both versions can be downloaded."""
    found = sorted((site / "notebooks").glob("*/*.html"))
    assert len(found) >= 33
    for path in found:
        text = path.read_text(encoding="utf-8")
        assert 'class="cell_output' in text and "-student.ipynb" in text, path.name


def test_every_figure_can_be_read(site: Path) -> None:
    """No notebook warned that a figure has a text that is cut, or a legend on its data."""
    told = "cannot be read in full"
    assert not [path.name for path in (site / "notebooks").glob("*/*.html") if told in path.read_text(encoding="utf-8")]


@pytest.fixture
def explorer(context: Any, site: Path) -> Any:
    page = context.new_page()
    page.goto((site / "explorer.html").as_uri())
    return page


def column(page: Any, name: str) -> list[str]:
    """Return a column of the explorer's table."""
    script = """(name) => {
      const place = [...document.querySelectorAll("#fr-explorer th")]
        .findIndex((head) => head.querySelector(`[data-column="${name}"]`));
      return [...document.querySelectorAll("#fr-explorer tbody tr")].map((row) => row.children[place].textContent);
    }"""
    return list(page.evaluate(script, name))


def test_the_explorer_filters(explorer: Any) -> None:
    """A filter leaves the rows of its value, the count and the picture follow, and the address keeps the choice."""
    data = json.loads(explorer.inner_text("#fr-data"))
    position = {name: number for number, name in enumerate(data["columns"])}
    wanted = [row for row in data["rows"] if row[position["paper"]] == "GFL-APPNP"]
    explorer.select_option("#fr-paper", "GFL-APPNP")
    assert set(column(explorer, "paper")) == {"GFL-APPNP"}
    drawn = sum(row[position["x"]] != "" for row in wanted)
    assert explorer.inner_text("#fr-status").startswith(f"{len(wanted)} of {len(data['rows'])} rows, {drawn} of them")
    assert explorer.locator("#fr-picture svg a").count() == drawn
    explorer.fill("#fr-search", "no such text")
    assert column(explorer, "paper") == []
    explorer.fill("#fr-search", "")
    again = explorer.context.new_page()
    again.goto(explorer.url)
    assert "#paper=GFL-APPNP" in explorer.url and set(column(again, "paper")) == {"GFL-APPNP"}
    explorer.click("text=Reset")
    assert explorer.inner_text("#fr-status").startswith(f"{len(data['rows'])} of")


def test_the_explorer_sorts(explorer: Any) -> None:
    """A click on a head sorts by number, a second click the other way round, and the head says so."""
    for name in ("difference", "method"):
        head = f'#fr-explorer [data-column="{name}"]'
        for way in ("ascending", "descending"):
            explorer.click(head)
            shown = [text for text in column(explorer, name) if text]
            assert explorer.locator(f'th[aria-sort="{way}"]').inner_text().strip(" ↑↓") == name
            if name == "difference" and shown:
                values = [float(text.replace("\u2212", "-")) for text in shown]
                assert values == sorted(values, reverse=way == "descending")
                assert len(set(values)) > 3 or way == "ascending"


def test_a_point_says_what_it_is(explorer: Any) -> None:
    """A point has a text, and a click opens its row with the command that recomputes it and a link to its exhibit."""
    point = explorer.locator("#fr-picture svg a").first
    told = point.get_attribute("aria-label")
    assert "printed" in told and "ours" in told
    point.dispatch_event("click")
    details = explorer.locator("tr.fr-details")
    assert details.count() == 1 and "fedrepro run" in details.locator("code").last.inner_text()
    assert details.locator("a[href^='papers/']").count() == 1
    assert explorer.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_follow_the_theme(browser: Any, site: Path, mode: str) -> None:
    """The marks of the explorer's words have the colours of the page's theme, which follows the reader's."""
    context = browser.new_context(color_scheme=mode)
    page = context.new_page()
    page.goto((site / "explorer.html").as_uri())
    data = json.loads(page.inner_text("#fr-data"))
    word = page.locator(".fr-word").first
    colour = data["looks"][word.inner_text().strip()][mode == "dark"]
    rgb = f"rgb({', '.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))})"
    assert word.locator("svg .fr-mark").first.evaluate("(one) => getComputedStyle(one).stroke") == rgb
    assert page.evaluate("document.documentElement.dataset.theme") == mode
    context.close()


# The colour of each text that a reader sees, and of the ground behind it.
TEXTS = """() => [...document.querySelectorAll("article :is(p, a, li, code, td, th, button, h1, pre span), nav a")]
  .filter((one) => one.offsetParent && one.textContent.trim()).map((one) => {
    const behind = (node) => getComputedStyle(node).backgroundColor;
    let ground = one;
    while (ground && /^rgba\\(.*, 0\\)$|transparent/.test(behind(ground))) ground = ground.parentElement;
    const back = ground ? behind(ground) : "rgb(255, 255, 255)";
    return [getComputedStyle(one).color, back, one.textContent.trim().slice(0, 40)];
  })"""


def hexadecimal(colour: str) -> str:
    return "#" + "".join(f"{int(float(part)):02x}" for part in re.findall(r"[\d.]+", colour)[:3])


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "explorer.html", "notebooks/fedgat/6-experiments.html"])
def test_text_stands_out_from_its_ground(browser: Any, site: Path, mode: str, name: str) -> None:
    """Every text has a contrast of at least 4.5 to the ground behind it, in the light and the dark theme."""
    context = browser.new_context(color_scheme=mode)
    page = context.new_page()
    page.goto((site / name).as_uri())
    faint: dict[tuple[str, str], str] = {}
    texts = page.evaluate(TEXTS)
    for colour, ground, text in texts:
        if contrast(hexadecimal(colour), hexadecimal(ground)) < 4.5:
            faint.setdefault((colour, ground), text)
    context.close()
    assert len(texts) > 20
    assert not faint


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<script>undefined_function()</script>", "errors"),
        ('<img src="gone.png" alt="a picture that is not there">', "errors"),
        ('<img src="https://example.org/x.png" alt="a picture of another host">', "requests"),
        ('<script src="https://example.org/x.js"></script>', "requests"),
        ("<p>costs $x$</p>", "dollars"),
        (r'<span class="math">\(x\)</span>', "unset"),
        ('<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="">', "nameless"),
    ],
)
def test_a_planted_fault_is_found(context: Any, tmp_path: Path, body: str, kind: str) -> None:
    """An error, a request to another host, a raw dollar, an unset formula and a nameless picture are found."""
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html><body>{body}</body></html>")
    assert kind in site_checks.visit(context, page.as_uri()).faults


def test_a_sound_page_has_no_fault(context: Any, tmp_path: Path) -> None:
    """A page with a formula that the site's MathJax sets has no fault, and a dollar in code is none."""
    script = (build.STATIC / "mathjax" / "tex-svg.js").as_uri()
    page = tmp_path / "page.html"
    head = f'<head><meta charset="utf-8"><script src="{script}"></script></head>'
    body = r'<body><span class="math">\(\frac{a}{b}\)</span><code>$HOME</code></body>'
    page.write_text(f"<!doctype html><html>{head}{body}</html>")
    seen = site_checks.visit(context, page.as_uri())
    assert not seen.faults and seen.formulas == 1


def test_dead_links_are_found(tmp_path: Path) -> None:
    """A link to a missing file or name is dead; one to a file, a name or another host is not."""
    (tmp_path / "other.html").write_text('<h1 id="there">x</h1>')
    links = ["gone.html", "other.html#gone", "other.html#there", "other.html", "https://example.org/x", "#here"]
    page = tmp_path / "page.html"
    page.write_text('<a id="here"></a>' + "".join(f'<a href="{link}"></a>' for link in links))
    assert site_checks.dead(page) == ["page.html: gone.html", "page.html: other.html#gone"]
