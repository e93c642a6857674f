"""FedGAT, a federated graph attention network. Read `method` first, then `protocol`.

method            the training, next to Algorithms 1 and 2
protocol          the algorithms literally, message by message, in the Matrix and the Vector form
exhibits/grids    the settings, and the runs behind each table and figure
exhibits/tables   the paper's names for the runs, and their tables
exhibits/claims   the claims and their checks
as_coded          the training in the reading of the public code
chebyshev         the polynomial that approximates the attention score
theory            bounds, identities and costs
attack            features recovered from the messages, and the effect of noise

Five files explain Algorithm 1, the training and Table 1 (FG-T1): `method`, `protocol`, `exhibits/grids` and
`exhibits/tables` of the paper, and `engine/method`, which holds the hooks of a round.
"""

NAME = "FedGAT"
