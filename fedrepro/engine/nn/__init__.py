"""Stacked layers, models as pure functions of (weights, federation), optimizers, and randomness without state."""
