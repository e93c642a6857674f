"""Bad inputs as rows of a table: a call, and words that the error must have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedrepro.errors import FedreproError

Row = tuple[str, Callable[[], Any], tuple[str, ...]]
LONGEST_MESSAGE = 1500


def bad(name: str, call: Callable[[], Any], *words: str) -> Any:
    """Return a row: what is wrong, the call, and words of its message, the argument and what was given among them."""
    return pytest.param(call, words, id=name)


def refuses(call: Callable[[], Any], words: tuple[str, ...]) -> FedreproError:
    """Check that a call raises an error of the package whose message has some words, in sentences of one line."""
    with pytest.raises(FedreproError) as raised:
        call()
    told = str(raised.value)
    assert [word for word in words if word not in told] == [], told
    assert len(told) <= LONGEST_MESSAGE and told.endswith((".", "?")), told
    return raised.value
