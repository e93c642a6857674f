"""Train the methods that several papers compare with, each from its own paper.

One file is one method, and it opens with its paper, its equations and its algorithm. Equations and steps are numbered
as in that docstring. The papers were not at hand for most methods, so we followed the authors' public code where the
docstring says so.

    fedprox, fedper               FedAvg with one change in the local objective, or in what travels
    fedpub, pfedgraph, pfedhn     a personal model for every client, made at the server
    flow                          a choice between global and local model at every node
    fggp                          prototypes (`prototypes`) and a second view of each graph (`second_view`)
    fedsage                       generated neighbours (`neighgen`), learned on an `impaired` graph
    fedgcn                        neighbourhood sums, exchanged once before training

Two files hold what several methods use: `personal` takes networks and federations apart, `malicious` forges messages.
"""
