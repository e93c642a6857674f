"""FedSheafHN: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `sheaf` (sheaf diffusion on the graph of clients), `hypernetwork` (from the vector of
a client to its weights), `server` (both together), `method` (what trains, next to Algorithm 1), `protocol` (the method
as printed and as coded), `theory`, `exhibits`. The attacks forge embeddings: see `fedrepro.baselines.malicious`,
since baselines are attacked in the same way.
"""

NAME = "FedSheafHN"
