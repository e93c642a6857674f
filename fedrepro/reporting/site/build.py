"""Build the site: write its sources, then let Sphinx make the pages of what changed."""

from __future__ import annotations

import io
import os
import re
import shutil
import time
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fedrepro
from fedrepro import paths
from fedrepro.errors import FedreproError, one_of, require
from fedrepro.paths import replace_file
from fedrepro.reporting.session import CHOICES
from fedrepro.reporting.site import docstrings, sources
from fedrepro.runs import cache

STATIC = Path(__file__).parent / "static"
PACKAGES = ("sphinx", "myst-nb", "pydata-sphinx-theme")
NEEDED = "The site needs the packages of the extra 'site'. Install them with: pip install 'fedrepro[site]'"

SETTINGS: dict[str, Any] = {
    **tomllib.loads(Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")),
    "version": fedrepro.__version__,
    "release": fedrepro.__version__,
    "html_static_path": [str(STATIC)],
}


@dataclass(frozen=True)
class Built:
    """A built site: its start page, the warnings of Sphinx, and the seconds that it took."""

    start: Path
    warnings: list[str]
    seconds: float


def folder(profile: str = "") -> Path:
    """Return where the site goes: `build/site`, or `build/smoke/site` for the copies of the smoke runs."""
    return (paths.smoke() if profile == "smoke" else paths.root() / "build") / "site"


def state(written: sources.Sources) -> str:
    """Return what the site is made from, files as a hash. Sphinx needs seconds to find out that nothing changed."""
    files = [*written.kept, *STATIC.rglob("*"), *(paths.root() / "fedrepro").rglob("*.py")]
    content = cache.content(sorted(str(path) for path in files if path.is_file()))
    return repr((SETTINGS, [version(name) for name in PACKAGES], content))


def build(profile: str = "") -> Built:
    """Build the site from the executed notebooks, the figures and the package; only pages that changed are made anew.

    Raises:
        FedreproError: a package of the extra `site` is missing, or Sphinx could not finish.
        ArgumentError: this is no checkout, or there is no such profile.
    """
    one_of("profile", profile, ("", *CHOICES["profile"]))
    start = time.monotonic()
    try:
        for name in PACKAGES:
            version(name)
    except PackageNotFoundError as error:
        raise FedreproError(f"{NEEDED} Missing: {error.name}.") from error
    root = paths.root()
    require((root / "notebooks").is_dir(), "the current folder", "a checkout, with notebooks/ and README.md", str(root))
    site = folder(profile)
    work = site.with_name("site-work")
    written = sources.write(work / "sources", profile)
    stamp, now = work / "stamp", state(written)
    if stamp.is_file() and stamp.read_text() == now and (site / "index.html").is_file():
        return Built(site / "index.html", [], time.monotonic() - start)
    stamp.unlink(missing_ok=True)
    if written.renewed:
        shutil.rmtree(site, ignore_errors=True)
        shutil.rmtree(work / "doctrees", ignore_errors=True)
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    warnings = io.StringIO()
    try:
        with patch_docutils(), docutils_namespace():
            app = Sphinx(
                work / "sources",
                None,
                site,
                work / "doctrees",
                "html",
                confoverrides=SETTINGS,
                status=None,
                warning=warnings,
                parallel=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
            )
            app.connect("autodoc-process-docstring", docstrings.process, priority=1)
            app.connect("doctree-read", docstrings.unlink)
            app.build()
    except SphinxError as error:
        raise FedreproError(f"Sphinx could not build the site: {error}") from error
    told = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in warnings.getvalue().splitlines() if line.strip()]
    if not told:
        replace_file(stamp, now.encode())
    return Built(site / "index.html", told, time.monotonic() - start)
