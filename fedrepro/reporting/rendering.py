"""Render executed notebooks as HTML, with nbconvert's templates, in a third of its time."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_CELL = re.compile(r'(<div class="[^"]*\bjp-(?:Cell-inputWrapper|OutputArea-output)\b[^"]*")')
_UNDESCRIBED = re.compile(r"<img (?![^>]*\balt=)")


def write(path: Path) -> None:
    """Write the HTML page of a notebook next to it."""
    import nbformat

    body, _ = exporter().from_notebook_node(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]
    path.with_suffix(".html").write_text(body, encoding="utf-8")


@cache
def exporter() -> Any:
    """Return what renders notebooks as HTML. Its first page, which compiles the templates, is made here.

    nbconvert cleans the HTML of code, which pygments has escaped, and parses each page again to let cells take the
    focus and to describe pictures. That takes two thirds of the time, so `Page` replaces text instead.
    """
    import nbformat
    from markupsafe import Markup
    from nbconvert import HTMLExporter, filters
    from nbconvert.exporters import TemplateExporter
    from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter

    class Page(HTMLExporter):
        def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> Any:
            widgets = {"notebook_metadata": self._nb_metadata, "parent": self, "resources": resources}
            self.register_filter("filter_data_type", WidgetsDataTypeFilter(**widgets))  # type: ignore[no-untyped-call]
            page, resources = TemplateExporter.from_notebook_node(self, nb, self._init_resources(resources), **kw)  # type: ignore[no-untyped-call]
            return _UNDESCRIBED.sub('<img alt="figure" ', _CELL.sub(r'\1 tabindex="0"', page)), resources

    pages = Page()  # type: ignore[no-untyped-call]
    pages.log.setLevel("ERROR")
    highlight = filters.Highlight2HTML(parent=pages)  # type: ignore[no-untyped-call]
    pages.register_filter("highlight_code", lambda *code, **more: Markup(highlight(*code, **more)))  # type: ignore[no-untyped-call]
    clean = filters.clean_html
    pages.register_filter("clean_html", lambda text: text if isinstance(text, Markup) else clean(text))  # type: ignore[no-untyped-call]
    pages.from_notebook_node(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]
    return pages
