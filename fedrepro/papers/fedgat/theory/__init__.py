"""FedGAT's bounds, identities and costs, as plain functions and as checks.

bounds        the theorems' right-hand sides, as printed and as corrected
trials        random nodes and layers, and the largest error over them
identities    Eq. 9 to 14, 21, 22 and Appendix F, and the whole layer from messages on a graph
theorems      Theorems 1 to 5 and Lemma 1
scored        the attention scores of a trained FedGAT at the round that is scored, and a GAT's predictions
cost          the numbers sent before training, counted from a partition
"""
