"""Show two small instances of FedGAT whose numbers a reader can move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from fedrepro.papers.fedgat import attack, chebyshev, pictures, protocol
from fedrepro.papers.fedgat.method import paper_score
from fedrepro.reporting import figures
from fedrepro.reporting.pictures import FAINT


def series(degree: int = 16, interval: float = 4.0) -> Any:
    """Draw the score of an edge and its Chebyshev series, inside and outside the interval, and return the figure.

    Args:
        degree: p of Eq. 7.
        interval: the series is that of the score on [-interval, interval].
    """
    q = chebyshev.coefficients(lambda t: paper_score(interval * t), degree)
    x = np.linspace(-1.15 * interval, 1.15 * interval, 401)
    polynomial = chebyshev.evaluate(torch.from_numpy(x / interval), q).numpy()
    inside = np.abs(x) <= interval
    error = np.abs(polynomial - paper_score(x))[inside].max()
    lines = pd.concat(
        pd.DataFrame({"score of the edge, x": x, "value": value, "line": name})
        for name, value in (("exp(LeakyReLU(x))", paper_score(x)), (f"series of degree {degree}", polynomial))
    )
    title = f"largest error within the interval: {error:.3g}"
    figure = figures.curves(lines, "score of the edge, x", "value", "line", band="none", title=title)
    figures.finish(figure, counts=False)
    ax = figure.axes[0]
    top = float(paper_score(np.array([interval]))[0])
    ax.set(ylim=(-0.15 * top, 1.6 * top))
    for end in (-interval, interval):
        ax.axvline(end, color=FAINT, ls="--", lw=1)
    return figure


def recovered(neighbours: int = 3, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Return the features of a node's neighbours, true and as `attack.recover` reads them off one message.

    Args:
        neighbours: of the node, itself among them.
        noise: standard deviation of the normal noise that the server adds to every number.
    """
    h = pictures.normal(neighbours, pictures.FEATURES, seed=seed)
    (sent,) = protocol.matrix_messages(0, h[0], h, seed)
    noisy = {
        name: getattr(sent, name) + noise * pictures.normal(*getattr(sent, name).shape, seed=number)
        for number, name in enumerate(("m1", "m2", "k1", "k2"))
    }
    message = protocol.MatrixMessage(node=0, first=0, **noisy)
    guesses = attack.match(attack.recover(lambda: iter([message]), h[0]), h)
    names = [f"feature {number}" for number in range(pictures.FEATURES)]
    rows = [f"node {row}" for row in range(neighbours)]
    parts = {"true": pd.DataFrame(h.numpy(), rows, names), "recovered": pd.DataFrame(guesses.numpy(), rows, names)}
    return pd.concat(parts, axis=1).round(3)
