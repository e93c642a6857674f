"""FedGAT, a federated graph attention network. Read `method` first, then `protocol`.

method       what trains, next to Algorithms 1 and 2
as_coded     what trains in the reading of the public code
chebyshev    the polynomial in place of the attention score
protocol     the algorithms literally, message by message, in the Matrix and the Vector form
theory       bounds, identities and costs
attack       features recovered from the messages, and what noise costs
exhibits     the runs behind each table and figure, and the claims
"""

NAME = "FedGAT"
