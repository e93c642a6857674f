"""Feras's theory on random two-layer systems: its identities, its convergence, and its looser constraint.

Read the modules in this order: `model` (Section 4.1), `identities` (Eq. 7 to 24 and 38 to 42), `convergence` (Theorems
4.1 and 4.4 and their lemmas), `rates` (Theorem 4.5), `looser` (Theorem 4.6).
"""
