"""The exhibits of GFL-APPNP: the runs behind them, their tables, and the paper's claims."""

from fedrepro.papers.gfl.exhibits.claims import CLAIMS
from fedrepro.papers.gfl.exhibits.grids import GRIDS
from fedrepro.papers.gfl.exhibits.tables import main_reading, prepare, with_new_graphs

__all__ = ["CLAIMS", "GRIDS", "main_reading", "prepare", "with_new_graphs"]
