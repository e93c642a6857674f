"""Tables and checks of GFL-APPNP's algorithm, identities, theorem, lemma and privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedrepro import paths
from fedrepro.reporting import checks, exhibits, figures
from fedrepro.reporting.checks import FAILS, NOT_MEASURED, NOT_TESTED, Row
from fedrepro.reporting.claims import NOT_CHECKED
from fedrepro.reporting.statistics import Slope, slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNREFUTED = "not refuted"  # where no outcome could confirm the statement
IDENTITIES = {"GFL-I2": "gfl-gradient-split", "GFL-I3": "gfl-one-local-step", "GFL-I6": "gfl-identity-aggregator"}
CONTROLS = {  # the same difference where the identity must not hold
    "GFL-I3": "the same with two local steps and two central ones a round",
    "GFL-I6": "the same with the graph's propagation matrix",
}

# --- Algorithm 1 and its messages --------------------------------------------------------------------------------

STEPS = {  # of Figure 1(a)
    "up.weights": "(i) models",
    "down.weights": "(ii) aggregated model",
    "up.h": "(iii) hidden representations",
    "up.gradient of h": "(iii) their gradients",
    "down.C": "(iv) aggregated representations",
    "down.gradient of C": "(iv) their gradients",
}


def steps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the scalars of a round by step of Figure 1(a), all clients together (GFL-F1a)."""
    columns = ["dataset", "clients", "step", "direction", "scalars", "runs"]
    rows = [
        [run["dataset"], int(run["aggregator.scalars"]), step, name.partition(".")[0], run[f"sent.{name}"], 1]
        for run in frame.drop_duplicates("dataset").to_dict("records")
        for name, step in STEPS.items()
    ]
    return pd.DataFrame(rows, columns=columns)


def parts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return size, number of different ones and training of the two parts of a client (GFL-F1b)."""
    columns = ["dataset", "clients", "part", "scalars", "different", "trained", "runs"]
    rows = [
        [
            *(run["dataset"], int(run["aggregator.scalars"]), part),
            *(run[f"{part}.scalars"], run[f"{part}.different"], part == "encoder", 1),
        ]
        for run in frame.drop_duplicates("dataset").to_dict("records")
        for part in ("encoder", "aggregator")
    ]
    return pd.DataFrame(rows, columns=columns)


# --- Theorem 4.1, Corollary 4.2 and Lemma A.1 --------------------------------------------------------------------

OVER_FIXED = "N, over the fixed step"
FIRST_TERM = "first term of the same run"
THEOREM = {
    "T": "-1/2",
    "N": "-1/2",
    "N, fixed step": "0",
    "N, untrained": "none: the data",
    OVER_FIXED: "-1/2",
    "I": "at most 4, with Lemma A.1's sigma_H",
    "sigma_H": "at most 2",
    "lambda_max": "at most 1",
}


# On small steps F falls by eta |grad F|^2, so the squared gradients sum to (F(W^0) - F(W^T)) / eta.
HALF = "any descent by small steps gives one half, whatever loss, N, T, graph and rate"


def lemma_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each run's largest squared error over `2 eta^2 rho_h^2 I^2 Delta`, with rho_h and Delta of other seeds.

    The column `without_I` is the negative control. It holds the same error over the bound without its factor I^2, which
    the error must exceed.
    """
    setting = ["local_epochs", "lr"]
    pairs = frame.merge(frame[[*setting, "seed", "rho_h", "Delta"]], on=setting, suffixes=("_own", ""))
    others = pairs[pairs["seed"] != pairs["seed_own"]].groupby([*setting, "seed_own"])
    largest = others[["rho_h", "Delta"]].agg("max", skipna=False)
    table = others[["largest_error"]].first().join(largest).rename_axis(index={"seed_own": "seed"}).reset_index()
    without = table["largest_error"] / (2 * table["lr"] ** 2 * table["rho_h"] ** 2 * table["Delta"])
    ratio = without / table["local_epochs"] ** 2
    return table.assign(largest_ratio_to_bound=ratio, without_I=without, runs=others.size().to_numpy())


def rate_points(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of each axis of Theorem 4.1 and Corollary 4.2.

    The column `x` is the value of the axis, `y` the mean squared gradient norm, and `ratio` this mean over the bound's
    first term. N has three controls: the same runs at a fixed step; the squared gradient norm of the untrained weights,
    which shows the data; and the quotient of the two steps (`OVER_FIXED`), which is the effect of the corollary's step.
    """
    if "first_term" not in frame:
        return {}
    climbs = frame["ascend"].eq(True) if "ascend" in frame else frame["first_term"].isna()
    frame = frame[~climbs]
    frame = frame.assign(y=frame["mean"], ratio=frame["mean"] / frame["first_term"])
    free, base = frame["lr"].eq(0), frame["dataset"].eq("csbm-n40")
    nodes = frame["dataset"].str.startswith("csbm-n") & ~base
    axes = {
        "T": (base & free, "updates"),
        "N": (nodes & free, "N"),
        "N, fixed step": (nodes & ~free, "N"),
        "I": (base & ~free & frame["error"].eq(0), "local_epochs"),
        "sigma_H": (base & ~free & frame["error"].gt(0), "sigma_H"),
        "lambda_max": (frame["dataset"].str.startswith("csbm-d"), "lambda_max"),
    }
    points = {axis: frame[rows].assign(x=frame[name], axis=axis) for axis, (rows, name) in axes.items()}
    points["N, untrained"] = points["N"].assign(y=points["N"]["at_start"], ratio=math.nan, axis="N, untrained")
    pairs = points["N"].merge(points["N, fixed step"][["dataset", "seed", "y"]], on=["dataset", "seed"])
    points[OVER_FIXED] = pairs.assign(y=pairs["y_x"] / pairs["y_y"], ratio=math.nan, axis=OVER_FIXED)
    return points


def rate_table(points: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return for each axis the fitted exponent of the mean, that of the bound's term, and two largest ratios.

    The ratios are those to the bound's first term, and the theorem's condition `13 I eta^2 rho_f^2`.
    """
    rows = []
    for axis, runs in points.items():
        fit = Slope(math.nan, math.nan, math.nan, math.nan, 0)
        if runs["x"].nunique() > 1:
            fit = slope(runs["x"].tolist(), runs["y"].tolist())
        largest = (runs["ratio"].max(skipna=False), runs["condition"].max(skipna=False))
        rows.append([axis, fit.slope, fit.low, fit.high, THEOREM[axis], *largest, len(runs)])
    ratios = ["largest ratio to the first term", "largest condition", "runs"]
    columns = ["axis", "exponent", "low", "high", "exponent of the term", *ratios]
    return pd.DataFrame(rows, columns=columns if rows else [])


def rates_and_order(rows: pd.DataFrame, x: str, y: str, *, axes: Axes, **look: Any) -> Figure:
    """Draw the fitted power laws of a panel, T or N, and a grey line of the order that the corollary states.

    That line goes through the geometric mean of the first terms, since the corollary has no constant.
    """
    figure = figures.slopes(rows, x, y, axes=axes, **look)
    first = rows[rows["line"].eq(FIRST_TERM)]
    if len(first):
        ends = np.array([first[x].min(), first[x].max()])
        middle = np.exp(np.log(first[[x, y]]).mean())
        name = rf"order ${rows['panel'].iloc[0][-1]}^{{-1/2}}$ of the corollary"
        axes.plot(ends, middle[y] * (ends / middle[x]) ** -0.5, color="#AAAAAA", linewidth=3, zorder=1, label=name)
        axes.legend()
    return figure


def rate_checks(frame: pd.DataFrame) -> list[Row]:
    """Return the checks of Theorem 4.1: each axis against the bound's first term, its condition, and a control.

    Four axes say "not tested", as no implementation that takes small steps could fail them (`HALF`). The errors of the
    axis sigma_H could raise the mean above the first term, and would not refute the bound then, as the constant of its
    third term is unknown. Below it the bound is "not refuted". The control climbs with steps of the printed sign. Its
    mean must exceed the largest possible first term, that of F* = 0.
    """
    table = rate_table(rate_points(frame))
    rows: list[Row] = []
    if len(table):
        ratios = table.set_index("axis")["largest ratio to the first term"]
        for axis in ("T", "N", "I", "sigma_H", "lambda_max"):
            text = f"mean squared gradient over the bound's first term, against {axis}"
            worst = float(ratios[axis])
            if axis == "sigma_H":
                verdict = UNREFUTED if worst <= 1 else NOT_CHECKED
            else:
                text, verdict = f"{text}; {HALF}", NOT_TESTED
            rows.append(checks.row(f"GFL-Th-{axis}", text, worst, 1) | {"verdict": verdict})
        worst = float(table.loc[table["runs"].gt(0), "largest condition"].max(skipna=False))
        text = "13 I eta^2 rho_f^2 with the largest curvature met"
        verdict = UNREFUTED if worst < 1 else FAILS
        rows.append(checks.row("GFL-Th-condition", text, worst, 1) | {"verdict": verdict})
    if "ascend" in frame and frame["ascend"].eq(True).any():
        climb = frame[frame["ascend"].eq(True)]
        over = climb["mean"] / (2 * climb["loss_at_start"] / (climb["eta"] * climb["updates"]))
        text = "the printed sign, which climbs: mean over 2 F(W^0) / (eta T)"
        rows.append(checks.control("GFL-Th", text, over.min(skipna=False), 1))
    return rows


def lemma_checks(table: pd.DataFrame) -> list[Row]:
    """Return the check of Lemma A.1 with constants of other seeds, and its control, the bound without I^2."""
    if table.empty:
        return []
    text = "Lemma A.1: largest error over its bound, constants of other seeds"
    other = "the same bound without its factor I^2, least over I, step and seed"
    return [
        checks.row("GFL-L1", text, table["largest_ratio_to_bound"].max(skipna=False), 1),
        checks.control("GFL-L1", other, table["without_I"].min(skipna=False), 1),
    ]


def identity_checks(frame: pd.DataFrame) -> list[Row]:
    """Return the checks of the identities GFL-I2, I3 and I6 with controls, and the printed sign of the step (GFL-Q3).

    The control of GFL-I2 is the printed sign.
    """
    rows = []
    for name, method in IDENTITIES.items():
        runs, column = frame[frame["method"].eq(method)], identity_error(name)
        rows.append(checks.row(name, column.replace("_", " "), runs[column].max(skipna=False), 1e-10))
        if name in CONTROLS:
            rows.append(checks.control(name, CONTROLS[name], runs["control"].min(skipna=False), 1e-10))
    cosine = frame.loc[frame["method"].eq(IDENTITIES["GFL-I2"]), "printed_cosine"].max(skipna=False)
    return [*rows, checks.row("GFL-Q3", "cosine of the printed step to the gradient", cosine, 1, holds=cosine >= 0)]


def identity_error(name: str) -> str:
    """Return the column that holds the error of an identity."""
    return "relative_error" if name == "GFL-I2" else "largest_difference"


# --- privacy -----------------------------------------------------------------------------------------------------

COSINES = ["cosine", "cosine_with_h", "cosine_of_difference"]
REBUILT, HIDDEN = 0.9, 0.5  # the cosine above which x is called rebuilt, and below which hidden


def attacks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the attacks with their party, the best of their cosines, and the line of GFL-Q7's figure."""
    frame = frame.assign(**{name: frame.get(name) for name in ("party", *COSINES)})
    frame["party"] = frame["party"].fillna("client, differences")
    frame["best"] = frame[COSINES].astype(float).max(axis=1)
    return frame.assign(line=frame["party"] + frame["noise"].map({0: "", 1: ", noise of V1"}))


def rebuilt(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean cosines between x and the rebuilt vector, by party, neighbours, noise, I and rounds (GFL-Q7)."""
    groups = frame.groupby(["party", "neighbours", "noise", "local_epochs", "rounds"])
    return groups[[*COSINES, "best"]].mean().assign(runs=groups["seed"].count()).reset_index()


def privacy_checks(table: pd.DataFrame) -> list[Row]:
    """Return what server and neighbour rebuild of x, a row for each of `privacy.csv` that has been measured.

    The file names the rows of `rebuilt` that count (a query of pandas), which of their cosines is taken, and whether
    it is the least, where x is open, or the most, where it is hidden. The rows of V1 compare the noisy gradients by
    themselves with the gradients and h, which goes out clean. Noise hides the differences of columns from a centre. A
    separate row has the result of its least squares under the same noise.
    """
    rows = []
    for known in paths.read_csv(exhibits.folder("gfl") / "privacy.csv"):
        cosines = table.query(known["chosen"])[known["cosine"]]
        if len(cosines):
            measured = cosines.agg(known["end"], skipna=False)
            verdict = "rebuilt" if measured > REBUILT else "rebuilt in part" if measured > HIDDEN else "hidden"
            verdict = NOT_MEASURED if math.isnan(measured) else verdict
            text = f"cosine of x and what {known['statement']}"
            rows.append(checks.row(f"GFL-privacy-{known['id']}", text, measured, 1) | {"verdict": verdict})
    return rows
