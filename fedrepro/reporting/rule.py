"""The rule that gives one word to a published number and our runs.

Let `d` be our mean less the published one, in accuracy points, `h90` and `h95` the half-widths of its 90% and 95%
intervals, and the margin two points. The word is the first that holds:

    agrees                |d| + h90 <= 2   the 90% interval lies within the margin (two one-sided tests)
    compatible            |d| <= h95       a rerun of the paper could print its number; "but wide" if h95 > 5
    differs               |d| - h90 > 2    the 90% interval lies outside the margin
    differs a little      otherwise        outside the prediction interval, a difference within the margin not excluded

A number is *not tested* where nothing was measured or printed, where only a stand-in was measured, or where the printed
number is known to belong to another protocol.

Both intervals are t intervals with the standard error sqrt(v_o + v_p). The variance of our mean is v_o = s^2/n. The
error v_p of the published mean depends on the paper:

    split and partition redrawn for each of its runs    v_p = its variance / its runs
    one split kept for all of its runs, or not stated   v_p = our variance over splits, or its own if larger
    one graph kept, and one graph in all our runs       v_p = our variance over graphs drawn anew, or s^2 or its own if
                                                        larger, since a graph adds to the variance over splits; v_o also
                                                        has what the first of these exceeds s^2 by
    a peak of n runs                                    ours is the expected largest of n runs as well; since it grows
                                                        with our standard deviation, so that too small a one errs twice,
                                                        the tails of both intervals are halved (found by simulation)

If our variance replaces the paper's, the degrees of freedom are ours. Our variances are moderated by a prior of each
paper (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, section 3). A cell with `f` degrees of
freedom has the variance (f_0 s_0^2 + f s^2) / (f_0 + f) with f_0 + f degrees of freedom, so that a cell of one run has
the prior's variance. A printed number has its rounding error, uniform over the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import digamma, polygamma, stdtr, stdtrit
from scipy.stats import norm

from fedrepro.errors import require

MARGIN = 2.0  # accuracy points
TAIL, PEAK_TAIL = 0.05, 0.025  # of the 90% interval, to each side; that of a peak is wider, see the module
WIDEST = 5.0  # points of half-width beyond which "compatible" says little
AGREES, COMPATIBLE, WIDE = "agrees", "compatible", "compatible, but wide"
LITTLE, DIFFERS, NOT_TESTED = "differs a little", "differs", "not tested"
FITS = (AGREES, COMPATIBLE)  # the words of a reading that explains a cell
WORDS = (AGREES, COMPATIBLE, WIDE, LITTLE, DIFFERS, NOT_TESTED)


class Prior(NamedTuple):
    """Prior knowledge of a variance over runs: `variance` (points^2) with `freedom` degrees."""

    variance: float = math.nan
    freedom: float = 0.0


NO_PRIOR = Prior()


class Intervals(NamedTuple):
    """A difference (points) with the half-widths of its intervals, and the p-value of |difference| <= margin.

    Behind them are the variance of our mean, that of the published one, and the degrees of freedom of their sum.
    """

    difference: Any
    half90: Any
    half95: Any
    p: Any
    ours: Any
    theirs: Any
    freedom: Any


def moderated(sd: ArrayLike, runs: ArrayLike, prior: Prior = NO_PRIOR) -> tuple[Any, Any]:
    """Return the variance of scores over runs and its degrees of freedom, moderated by a prior (Smyth 2004, section 3).

    Args:
        sd: standard deviation over runs (ddof 1); ignored for a single run.
        runs: number of runs.
        prior: of the paper. Without one a single run has the variance NaN.
    """
    degrees = np.maximum(np.asarray(runs, dtype=float) - 1, 0)
    squared = np.where(degrees > 0, np.square(np.asarray(sd, dtype=float)), 0.0)
    if math.isinf(prior.freedom):
        return np.full_like(squared, prior.variance), np.full_like(degrees, math.inf)
    known = prior.freedom * prior.variance if prior.freedom else 0.0
    freedom = degrees + prior.freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(freedom > 0, (known + degrees * squared) / freedom, math.nan), freedom


def intervals(
    ours: ArrayLike,
    variance: ArrayLike,
    freedom: ArrayLike,
    runs: ArrayLike,
    published: ArrayLike,
    spread: ArrayLike,
    runs_published: ArrayLike,
    *,
    redrawn: ArrayLike = False,
    peak: ArrayLike = False,
    rounding: ArrayLike = 0.0,
    anew: tuple[ArrayLike, ArrayLike] = (math.nan, math.nan),
) -> Intervals:
    """Return the difference of each cell with its intervals. All arguments are broadcast, and in points.

    Args:
        ours: our mean.
        variance, freedom: of our scores over runs, as `moderated` returns them.
        runs: number of our runs.
        published: the published number.
        spread: its standard deviation over runs; NaN if none is printed, and ours replaces it.
        runs_published: runs behind it.
        redrawn: whether the paper drew split and partition anew for each run.
        peak: whether the published number is the largest of its runs.
        rounding: the unit of its last digit.
        anew: where our runs keep one graph too, the variance of scores on graphs drawn anew and its degrees of freedom;
            NaN where our runs redraw all that the paper's may.
    """
    ours, variance, freedom, runs, published, spread, count, redrawn, peak, rounding = (
        np.asarray(value, dtype=float)
        for value in (ours, variance, freedom, runs, published, spread, runs_published, redrawn, peak, rounding)
    )
    our_variance, theirs, degrees = _errors(variance, freedom, runs, spread, count, redrawn, anew)
    if (peak > 0).any():
        middle, squared = (np.vectorize(_moment, otypes=[float])(count, power) for power in (1, 2))
        ours = np.where(peak > 0, ours + np.sqrt(variance) * middle, ours)
        our_variance = np.where(peak > 0, our_variance + variance * np.square(middle) / (2 * freedom), our_variance)
        theirs = np.where(peak > 0, variance * (squared - np.square(middle)), theirs)
        degrees = np.where(peak > 0, freedom, degrees)
    error = np.sqrt(our_variance + theirs + np.square(rounding) / 12)
    d = ours - published
    with np.errstate(invalid="ignore", divide="ignore"):
        beyond = [np.where(error > 0, (np.abs(d) + sign * MARGIN) / error, math.inf) for sign in (-1, 1)]
        at_edge = (error == 0) & (np.abs(d) <= MARGIN)
        p = np.where(at_edge, 1.0, stdtr(degrees, -beyond[0]) + stdtr(degrees, -beyond[1]))
    tail = np.where(peak > 0, PEAK_TAIL, TAIL)
    half90, half95 = (stdtrit(degrees, 1 - part) * error for part in (tail, tail / 2))
    p = np.minimum(p * np.where(peak > 0, TAIL / PEAK_TAIL, 1.0), 1.0)
    return Intervals(d, half90, half95, p, our_variance, theirs, degrees)


def _errors(
    variance: Any, freedom: Any, runs: Any, spread: Any, runs_published: Any, redrawn: Any, anew: tuple[Any, Any]
) -> tuple[Any, Any, Any]:
    """Return the variance of our mean, that of the published one, and the degrees of freedom of their sum.

    The arguments are arrays, as for `intervals`. If our variance replaces the paper's, the degrees are exactly
    ours, else those of Welch and Satterthwaite.
    """
    printed = np.square(spread)
    over_graphs, freedom_graphs = (np.asarray(part, dtype=float) for part in anew)
    between = np.where(np.isnan(over_graphs), 0.0, np.maximum(over_graphs - variance, 0.0))
    our_variance = variance / runs + between
    freedom = np.where(between > 0, freedom_graphs, freedom)
    ours = np.fmax(over_graphs, variance)  # replaces the paper's if `borrowed`
    borrowed = np.isnan(printed) | ((redrawn == 0) & ~(printed > ours))
    theirs = np.where(borrowed, ours, printed) / np.where(redrawn > 0, runs_published, 1.0)
    freedom_theirs = np.where(borrowed, freedom, runs_published - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        both = np.square(our_variance + theirs) / (
            np.square(our_variance) / freedom + np.square(theirs) / freedom_theirs
        )
    return our_variance, theirs, np.where(borrowed, freedom, np.where(our_variance + theirs > 0, both, math.inf))


def words(difference: ArrayLike, half90: ArrayLike, half95: ArrayLike, *, margin: float = MARGIN) -> Any:
    """Return the word of each difference, see the module; NaN is not tested."""
    d, h90, h95 = (np.asarray(values, dtype=float) for values in (difference, half90, half95))
    size = np.abs(d)
    named = np.select(
        [np.isnan(size + h95), size + h90 <= margin, (size <= h95) & (h95 <= WIDEST), size <= h95, size - h90 > margin],
        [NOT_TESTED, AGREES, COMPATIBLE, WIDE, DIFFERS],
        LITTLE,
    )
    return str(named) if named.ndim == 0 else named


def estimate(variances: Sequence[float], freedoms: Sequence[float]) -> Prior:
    """Fit the prior of a family of variances by the moments of their logarithms (Smyth 2004, section 6.2).

    Args:
        variances: sample variances; zeros, which have no logarithm, are left out.
        freedoms: their degrees of freedom.

    Returns:
        The prior. Its freedom is infinite if the variances differ no more than samples of one variance do.

    Raises:
        ArgumentError: fewer than two variances are above zero.
    """
    s2, f = np.asarray(variances, dtype=float), np.asarray(freedoms, dtype=float)
    s2, f = s2[s2 > 0], f[s2 > 0]
    require(len(s2) > 1, "variances", "at least two above zero", list(variances))
    logs = np.log(s2) - digamma(f / 2) + np.log(f / 2)
    middle = float(logs.mean())
    excess = float(logs.var(ddof=1) - polygamma(1, f / 2).mean())
    if excess <= float(polygamma(1, 5e5)):
        return Prior(math.exp(middle), math.inf)
    half = brentq(lambda x: float(polygamma(1, x)) - excess, 1e-3, 1e6)
    return Prior(math.exp(middle + float(digamma(half)) - math.log(half)), 2 * half)


@cache
def _moment(count: float, power: int) -> float:
    """Return the expectation of a power of the largest of `count` standard normal draws."""
    density = lambda x: x**power * count * norm.pdf(x) * norm.cdf(x) ** (count - 1)  # noqa: E731
    return float(quad(density, -12, 12)[0])
