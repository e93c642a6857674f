"""Feras: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (Feras), `saint` (GraphSAINT, on which it is built), `protocol` (Algorithm 1
and the table as printed), `theory`, `attack`, `exhibits`.

No `chosen.csv` lies here, since validation chooses no setting of these exhibits (FR-S1). It only chooses the round at
which a run is scored (FR-S6).
"""

NAME = "Feras"
