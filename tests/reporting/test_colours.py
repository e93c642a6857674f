"""Colours of figures and of the site, for colour-blind readers and against their ground, and the style around them."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import pytest
from sight import GROUNDS, SIGHT, closest, contrast

from fedrepro.reporting import answer, style
from fedrepro.reporting.site import explorer


@pytest.mark.parametrize("sight", SIGHT)
def test_lines_and_bars_can_be_told_apart(sight: str) -> None:
    """Any two colours stay 20 apart in CIELAB for every kind of sight; 2 is a difference just seen."""
    assert closest(style.COLOURS, SIGHT[sight]) > 20


def test_a_palette_of_red_and_green_would_be_found() -> None:
    """The colours that the figures had before are too close for an eye without green cones, and too pale on white."""
    former = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
    assert closest(former, SIGHT["deuteranopia"]) < 10
    assert min(contrast(colour, GROUNDS[0]) for colour in former) < 3


def test_lines_have_two_more_signs() -> None:
    """Each colour has a marker and dashes of its own, so that a line is known in grey too."""
    assert len(set(style.MARKERS)) == len({str(one) for one in style.DASHES}) == len(style.COLOURS)
    for one, other in itertools.combinations(range(len(style.COLOURS)), 2):
        assert style.MARKERS[one] != style.MARKERS[other] and style.DASHES[one] != style.DASHES[other]


def test_graphics_stand_out_from_the_ground() -> None:
    """Lines, bars and open marks have a contrast of at least 3 to the white of a figure, whatever the page's theme."""
    from fedrepro.reporting.figures import PRINTED

    for colour in [*style.COLOURS, *answer.COLOURS_OF_WORDS, PRINTED["edgecolor"], style.STYLE["axes.edgecolor"]]:
        assert contrast(colour, "#ffffff") >= 3, colour


def test_the_picture_of_words_has_the_explorers_colours() -> None:
    """A word has one colour in the picture of printed and measured numbers and in the explorer's light theme."""
    assert dict(zip(answer.TESTED, answer.COLOURS_OF_WORDS)) == {
        word: explorer.LOOKS[word][0] for word in answer.TESTED
    }


def test_the_style_is_set_in_a_block_and_gone_after_it() -> None:
    """A block sets the style whatever the user has set, one within it adds nothing, and an error ends both."""
    with plt.rc_context({"font.size": 31}):
        with pytest.raises(KeyError), style.style(), style.style():
            assert plt.rcParams["font.size"] == style.STYLE["font.size"]
            raise KeyError
        assert plt.rcParams["font.size"] == 31
        with style.style():
            assert plt.rcParams["font.size"] == style.STYLE["font.size"]
