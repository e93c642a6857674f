"""FedGAT's exhibits: the runs behind each, the paper's names for them, and the claims."""

from fedrepro.papers.fedgat.exhibits.claims import CLAIMS as CLAIMS
from fedrepro.papers.fedgat.exhibits.grids import GRIDS as GRIDS
from fedrepro.papers.fedgat.exhibits.tables import main_reading as main_reading
from fedrepro.papers.fedgat.exhibits.tables import prepare as prepare
