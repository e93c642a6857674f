"""Feras: method, protocol, theory, attacks and exhibits."""
