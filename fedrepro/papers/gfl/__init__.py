"""GFL-APPNP: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (what trains, next to Algorithm 1), `exchange` (the hidden representations that
clients share), `clients` and `data` (a client's samples, and the graphs they come from), `protocol` (Algorithm 1 line
by line), `theory`, `attack`, `exhibits`.
"""

NAME = "GFL-APPNP"
