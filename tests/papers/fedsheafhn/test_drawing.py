"""FedSheafHN's figures: a method has one colour in all of them, and a stand-in is called one."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.papers.fedsheafhn.exhibits import drawing, settings
from fedrepro.reporting import legible
from fedrepro.reporting.style import COLOURS

DRAWN = {
    "SH-A1": ("Local", settings.OURS, *settings.VARIANTS),
    "SH-F1a": settings.PERSONAL,
}


@pytest.mark.parametrize("exhibit", DRAWN)
def test_every_method_of_a_figure_has_a_colour_of_its_own(exhibit: str) -> None:
    """All methods of the figure are in the order, and no two have places with the same colour."""
    places = [drawing.COLOURED.index(name) % len(COLOURS) for name in DRAWN[exhibit]]
    assert len(set(places)) == len(DRAWN[exhibit])


def test_a_stand_in_is_named_with_the_rounds_of_its_runs() -> None:
    """Rounds are those of the stand-in's runs; real graphs keep their names, and the rows given stay as they are."""
    rows = pd.DataFrame({"dataset": ["Cora", settings.STANDIN], "percent": [80.0, 70.0]})
    runs = pd.DataFrame({"dataset": ["Cora", settings.STANDIN, settings.STANDIN], "rounds": [100, 5, 5]})
    assert drawing.name_stand_ins(rows, runs)["dataset"].tolist() == ["Cora", "ogbn-arxiv, stand-in (5 rounds)"]
    assert drawing.name_stand_ins(rows, runs.assign(rounds=[100, 3, 5]))["dataset"].iloc[1].endswith("(3-5 rounds)")
    assert drawing.name_stand_ins(rows)["dataset"].tolist() == ["Cora", "ogbn-arxiv, stand-in"]
    assert rows["dataset"].tolist() == ["Cora", settings.STANDIN]
    assert drawing.name_stand_ins(rows[:0], runs[:0]).empty


def test_each_method_has_a_panel_of_the_convergence_figure() -> None:
    """All eleven have one, FedSheafHN the first; the horizontal axis is named under each column; all can be read."""
    rows = [(settings.STANDIN, name, n, 70.0 + n) for name in settings.METHODS for n in (1, 2)]
    points = pd.DataFrame(rows, columns=["dataset", "method", "round", "test"])
    figure = drawing.convergence(points, "SH-F4a")
    assert figure is not None
    names = [ax.get_title().partition("\n")[0] for ax in figure.axes]
    assert names[0] == settings.OURS and sorted(names) == sorted(settings.METHODS)
    lowest = [ax for ax in figure.axes if ax.xaxis.get_tick_params()["labelbottom"]]
    assert len(lowest) == 4 and all(ax.xaxis.label.get_visible() for ax in lowest)
    assert "ogbn-arxiv, stand-in" in figure.get_suptitle()
    legible.arrange(figure)
    assert not legible.faults(figure)
    assert drawing.convergence(points[:0], "SH-F4a") is None
