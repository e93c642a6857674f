"""How an eye sees colours: kinds of colour blindness, distances in CIELAB, and contrast."""

from __future__ import annotations

import itertools

import numpy as np

# Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
GROUNDS = ("#ffffff", "#14181e")  # of the theme's pages, light and dark


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    x, y, z = np.cbrt(np.maximum(xyz / np.array([0.9505, 1, 1.089]), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def closest(colours: list[str], sight: np.ndarray) -> float:
    """Return the smallest distance between two colours in CIELAB, as an eye sees them."""
    seen = [lab(np.clip(sight @ linear(colour), 0, 1)) for colour in colours]
    return min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2))


def contrast(colour: str, ground: str) -> float:
    dark, light = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(one)) for one in (colour, ground))
    return (light + 0.05) / (dark + 0.05)
