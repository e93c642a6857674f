"""The exhibits of FedStruct: the runs behind them, their tables, and the paper's claims."""

from fedrepro.papers.fedstruct.exhibits.claims import CLAIMS
from fedrepro.papers.fedstruct.exhibits.grids import GRIDS
from fedrepro.papers.fedstruct.exhibits.tables import prepare

__all__ = ["CLAIMS", "GRIDS", "prepare"]
