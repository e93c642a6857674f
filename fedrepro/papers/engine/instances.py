"""Show and compare the small matrices of the engine's notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pandas as pd
from torch import Tensor


def fractions(matrix: Tensor, **labels: Any) -> pd.DataFrame:
    """Return a matrix as a table of fractions, with the `index` and `columns` of a frame.

    An entry is rounded to the nearest fraction whose denominator is below 100.
    """
    return pd.DataFrame(matrix.tolist(), **labels).map(lambda value: str(Fraction(value).limit_denominator(99)))


def gap(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Return the largest absolute difference of two sets of weights, over the names on the left."""
    return max(float((weight - right[name]).abs().max()) for name, weight in left.items())
