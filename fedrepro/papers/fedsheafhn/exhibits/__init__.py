"""The exhibits of FedSheafHN: the runs behind them, their tables, and the paper's claims."""

from fedrepro.papers.fedsheafhn.exhibits.claims import CLAIMS
from fedrepro.papers.fedsheafhn.exhibits.grids import GRIDS
from fedrepro.papers.fedsheafhn.exhibits.tables import prepare

__all__ = ["CLAIMS", "GRIDS", "prepare"]
