"""The exhibits of Feras: the runs behind them, their tables and curves, and the paper's claims."""

from fedrepro.papers.feras.exhibits.claims import CLAIMS
from fedrepro.papers.feras.exhibits.grids import GRIDS
from fedrepro.papers.feras.exhibits.tables import prepare

__all__ = ["CLAIMS", "GRIDS", "prepare"]
