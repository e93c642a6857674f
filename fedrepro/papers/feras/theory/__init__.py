"""Feras's bounds and identities as plain functions."""
