"""FedStruct: method, protocol, theory, attacks and exhibits.

Read the modules in this order: `method` (what trains, next to Algorithms 1 and 2), `structure` (structure features),
`powers` (the weighted powers of the adjacency matrix), `variants` (shared sums, and a server that knows the graph),
`protocol` (Algorithm 3 message by message), `theory`, `attack`, `exhibits`.

Table 5 and the public code give almost all settings (`settings.toml`). Validation accuracy chose four that they leave
open (FS-M1): whether ReLU and dropout precede the classifier of a GraphSAGE, FedGCN's optimizer, whether the penalties
of FedPub have a gradient, and whether FedSage+ knows how many neighbours are missing. The readings that were compared
are in the tables `open` of `settings.toml`, and their runs in `exhibits.readings.open_choices`.
"""

NAME = "FedStruct"
