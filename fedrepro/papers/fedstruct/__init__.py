"""FedStruct: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (what trains, next to Algorithms 1 and 2), `structure` (structure features),
`powers` (the weighted powers of the adjacency matrix), `variants` (shared sums, and a server that knows the graph),
`protocol` (Algorithm 3 message by message), `theory`, `attack`, `exhibits`.
"""

NAME = "FedStruct"
