"""Feras: method, protocol, theory, attacks and exhibits."""

NAME = "Feras"
