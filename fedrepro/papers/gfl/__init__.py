"""GFL-APPNP: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (what trains, next to Algorithm 1), `exchange` (the hidden representations that
clients share), `clients` and `data` (a client's samples, and the graphs they come from), `protocol` (Algorithm 1 line
by line), `theory`, `attack`, `exhibits`.

Validation chooses no hyper-parameter here. Rates and updates are those of the paper and of its public code
(`settings.toml`), so there is no `chosen.csv`. Validation only chooses the round that is scored (Appendix A.2.2).
"""

NAME = "GFL-APPNP"
