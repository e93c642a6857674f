"""The exhibits of Feras: the runs behind them, their tables and curves, and the paper's claims."""

from fedrepro.papers.feras.exhibits.claims import CLAIMS
from fedrepro.papers.feras.exhibits.grids import GRIDS
from fedrepro.papers.feras.exhibits.tables import main_reading, prepare, printed_rows

__all__ = ["CLAIMS", "GRIDS", "main_reading", "prepare", "printed_rows"]
