"""Figures can be read: nothing leaves the canvas, and no legend or text lies on something else."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fedrepro.reporting import beside, figures, files, legible
from fedrepro.reporting.style import style

LONG = (
    "a title that says which graph, which partition, how many clients and after how many rounds of training was tested"
)
AXIS = "federated test accuracy after local training, mean over the clients of a run (percent)"


def awkward(series: int = 8, runs: int = 1, low: float = 0.0, high: float = 100.0) -> pd.DataFrame:
    """Return lines with long names that fill the axes from corner to corner."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {"x": x, AXIS: rng.uniform(low, high), "line": f"a method with a long name, number {line}", "seed": seed}
            for line in range(series)
            for x in (1, 2, 5, 10, 20, 50, 100)
            for seed in range(runs)
        ]
    )


def crowded(kind: str) -> pd.DataFrame:
    return {
        "one run": awkward(),
        "many series": awkward(12, 3),
        "at the limits": awkward(3, 2).assign(**{AXIS: lambda f: np.where(f["seed"] == 0, 0.0, 100.0)}),
        "large numbers": awkward(3, 1, 1.1e10, 4.7e10),
        "small numbers": awkward(2, 2, 1e-7, 3e-7),
    }[kind]


FORMS: dict[str, Callable[[pd.DataFrame], Figure | None]] = {
    "curves": lambda f: figures.curves(f, "x", AXIS, "line", title=LONG),
    "bars": lambda f: figures.bars(f, "x", AXIS, "line", title=LONG),
    "points": lambda f: figures.bars(f, "x", AXIS, "line", points=True, span=10, title=LONG),
    "slopes": lambda f: figures.slopes(f[f[AXIS] > 0], "x", AXIS, "line", title=LONG),
    "boxes": lambda f: figures.boxes(f, "line", AXIS, title=LONG),
    "panels": lambda f: figures.panels(f.assign(graph=f["x"] % 3), "graph", figures.curves, x="x", y=AXIS, by="line"),
    "apart": lambda f: figures.apart(f, "x", AXIS, "line", title=LONG),
    "heat": lambda f: figures.heat(f.pivot_table(AXIS, "line", "x"), label=AXIS, title=LONG),
}


@pytest.mark.parametrize("kind", ["one run", "many series", "at the limits", "large numbers", "small numbers"])
@pytest.mark.parametrize("form", FORMS)
def test_awkward_data_can_be_read(form: str, kind: str, tmp_path: Path) -> None:
    """Long titles, many series and values at the limits leave nothing cut or covered, or saving would warn."""
    figure = FORMS[form](crowded(kind))
    assert figure is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.save("fedgat", "FG-F1", pd.DataFrame({"x": [1]}), figure, tmp_path)


def line(title: str = "", **names: str) -> Figure:
    with style():
        figure, ax = plt.subplots(figsize=(4, 3))
        ax.plot([0, 1], [0, 1], label="a line")
        ax.set(title=title, **names)
        plt.close(figure)
    return figure


def test_planted_faults_are_found() -> None:
    """A cut title, a legend on a line, a bar or a point, and a text on a text are named; a sound figure has none."""
    assert not legible.faults(line("short"))
    assert any("a title" in told and "leaves the canvas" in told for told in legible.faults(line(LONG)))
    for draw in ("plot", "bar", "scatter"):
        with style():
            figure, ax = plt.subplots()
            getattr(ax, draw)([0.5, 1, 2], [1, 1, 1], label="data")
            ax.set(xlim=(0, 2), ylim=(0, 2))
            ax.legend(loc="center")
            plt.close(figure)
        assert legible.faults(figure) == ["The legend with 'data' lies on data."], draw
    figure = line()
    for text in ("one", "other"):
        figure.axes[0].text(0.2, 0.8, text)
    assert legible.faults(figure) == ["'one' overlaps 'other'."]


def test_saving_warns_of_what_cannot_be_mended(tmp_path: Path) -> None:
    """A figure that keeps a fault is written, and the warning names the exhibit and the text."""
    figure = line()
    figure.text(0.9, 0.5, "a note that leaves the figure at its right")
    with pytest.warns(UserWarning, match="FG-F1 cannot be read in full: 'a note that leaves"):
        files.save("fedgat", "FG-F1", pd.DataFrame({"x": [1]}), figure, tmp_path)
    assert (tmp_path / "fedgat" / "FG-F1.svg").is_file()


def test_arranging_twice_changes_nothing() -> None:
    """A figure that was laid out keeps its size, its labels and its legend."""
    figure = figures.curves(crowded("large numbers"), "x", AXIS, "line", title=LONG)
    states = []
    for _ in range(2):
        ax = legible.arrange(figure).axes[0]
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        states.append((figure.get_figheight(), ax.get_ylabel(), ax.get_title(), labels))
    assert states[0] == states[1]


def test_ticks_are_the_same_at_any_resolution() -> None:
    """A drawing has the ticks that were measured, though a locator counts those that fit in rounded pixels."""
    figure = legible.arrange(line(AXIS))
    axis = figure.axes[0].yaxis
    ticks = []
    for dpi in (72, 110, 37):
        figure.set_dpi(dpi)
        figure.draw_without_rendering()
        ticks.append([label.get_text() for label in axis.get_majorticklabels()])
    assert ticks[0] == ticks[1] == ticks[2]


def test_a_power_of_ten_stands_in_the_label() -> None:
    """Ticks of large numbers are short, and the label says in which power they are, on linear and logarithmic axes."""
    frame = crowded("large numbers")
    for form in ("curves", "slopes"):
        figure = FORMS[form](frame)
        assert figure is not None
        ax = legible.arrange(figure).axes[0]
        assert ax.get_ylabel().replace("\n", " ").endswith("in $10^{10}$")
        assert not ax.yaxis.get_offset_text().get_visible() or not ax.yaxis.get_offset_text().get_text()
        shown = [float(re.sub(r"[^\d.]", "", label.get_text())) for label in ax.get_yticklabels()]
        assert 2 in shown and max(shown) < 10


def test_logarithmic_ticks_are_plain_numbers() -> None:
    """An axis from 1 to 100 says 1, 2, 5, 10 and so on, and one over many decades says powers of ten."""
    frame = pd.DataFrame({"x": [1, 10, 100], "y": [1e-8, 1e-4, 1.0], "line": "a"})
    ax = legible.arrange(figures.slopes(frame, "x", "y", "line")).axes[0]
    assert {"1", "10", "100"} <= {label.get_text() for label in ax.get_xticklabels()}
    assert any("10^{-4}" in label.get_text() for label in ax.get_yticklabels())
    assert not any(label.get_text() for label in ax.get_xticklabels(minor=True))


def test_panels_share_a_legend_that_counts_all_runs() -> None:
    """Panels in which a look means the same have one legend, with the runs of all of them; others have one each."""
    rows = [("p", "a", seed) for seed in range(3)] + [("q", "a", seed) for seed in range(5)]
    frame = pd.DataFrame(rows, columns=["panel", "line", "seed"]).assign(x=1, y=1.0)
    figure = figures.panels(frame, "panel", figures.curves, x="x", y="y", by="line")
    assert figure is not None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a (3-5 runs)"]
    with style():
        figure, axes = plt.subplots(1, 2)
        for ax, name in zip(axes, ("costs", "scores")):
            figures.curves(frame.assign(line=name), "x", "y", "line", axes=ax)
        plt.close(figure)
    legible.legends(figure)
    assert not figure.legends and all(ax.get_legend() is not None for ax in axes)
    assert not legible.faults(figure)


def test_names_beside_points_avoid_each_other_and_tell_their_points() -> None:
    """Each name is nearest to its own point, or a line joins them: points on nearly one place, and points in a row."""
    crowded = [1.0, 1.0, 1.001, 2.0], [1.0, 1.002, 1.0, 2.0]
    rows = [1.0, 1.001, 1.002, 1.003, 2.0, 0.0], [80.0, 80.8, 81.0, 82.0, 90.0, 60.0]
    for x, y in (crowded, rows):
        names = ["FedAvg", "FedProx", "FedSheafHN", "Local", "FedPer", "FedStruct (H2V)"][: len(x)]
        with style():
            figure, ax = plt.subplots()
            ax.plot(x, y, "o")
            beside.name_points(ax, names, x, y)
            plt.close(figure)
        assert not legible.faults(figure)
        lines = {tuple(text.xy) for text in ax.texts if not text.get_text()}
        places = ax.transData.transform(list(zip(x, y)))
        told = {text.get_text(): text for text in ax.texts if text.get_text()}
        assert sorted(told) == sorted(names)
        for number, name in enumerate(names):
            apart = [beside.distance(told[name].get_window_extent(), place) for place in places]
            assert int(np.argmin(apart)) == number or (x[number], y[number]) in lines, name
        assert lines, "some name stands farther off"


def test_a_tick_beyond_a_logarithmic_axis_is_not_shown() -> None:
    """Decades below the axis end no label is told to leave the canvas; within the axis each label counts."""
    with style():
        figure, ax = plt.subplots(figsize=(4, 3))
        ax.plot([0, 1], [5.0, 5e-9])
        ax.set(yscale="log", yticks=[1e-10, 1e-8, 1e-4, 1])
        ax.set_ylim(2e-9, 10)
        plt.close(figure)
    figure.draw_without_rendering()
    assert len(legible._ticks(ax.yaxis, minor=False)) == 3
    assert not [told for told in legible.faults(figure) if "canvas" in told]
