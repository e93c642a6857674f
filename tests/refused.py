"""Bad inputs as rows of a table: a call, and words that the error must have next to its form.

A message says what must be, and what was given. One about a file says what cannot be done with it and why, and that of
a partition what the graph needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fedrepro.errors import FedreproError

Row = tuple[str, Callable[[], Any], tuple[str, ...]]
LONGEST_MESSAGE = 1500
FORM = re.compile(r"\bmust\b.*\b[Gg]ot\b|(\bcannot\b|^Cannot\b|\bis not here\b).*:|\bneeds\b.*;", re.DOTALL)


def bad(name: str, call: Callable[[], Any], *words: str) -> Any:
    """Return a row: what is wrong, the call, and words of its message, the argument and what was given among them."""
    return pytest.param(call, words, id=name)


def refuses(call: Callable[[], Any], words: tuple[str, ...]) -> FedreproError:
    """Check that a call raises an error of the package whose message has some words, in sentences of one line."""
    with pytest.raises(FedreproError) as raised:
        call()
    told = str(raised.value)
    assert [word for word in words if word not in told] == [], told
    assert FORM.search(told), told
    assert len(told) <= LONGEST_MESSAGE and told.endswith((".", "?")), told
    return raised.value
