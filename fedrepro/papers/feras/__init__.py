"""Feras: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (Feras), `saint` (GraphSAINT, on which it is built), `protocol` (Algorithm 1
and the table as printed), `theory`, `attack`, `exhibits`.
"""

NAME = "Feras"
