"""Specify runs, compute those that the store lacks, and keep their records.

`Run` specifies one computation and `sweep` a grid of them.
"""

from fedrepro.runs.run import Run, sweep

__all__ = ["Run", "sweep"]
