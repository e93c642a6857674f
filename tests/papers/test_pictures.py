"""Pictures of the methods and the instances that a reader can move: what they draw is what the package computes."""

from __future__ import annotations

import base64
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrepro import paths
from fedrepro.errors import ArgumentError
from fedrepro.papers.engine import pictures as engine
from fedrepro.papers.fedgat import instances as fedgat
from fedrepro.papers.fedgat import pictures as fedgat_pictures
from fedrepro.papers.fedgat import protocol
from fedrepro.papers.fedsheafhn import instances as fedsheafhn
from fedrepro.papers.fedsheafhn import pictures as fedsheafhn_pictures
from fedrepro.papers.fedsheafhn import sheaf
from fedrepro.papers.fedstruct import instances as fedstruct
from fedrepro.papers.fedstruct import pictures as fedstruct_pictures
from fedrepro.papers.feras import instances as feras
from fedrepro.papers.feras import pictures as feras_pictures
from fedrepro.papers.gfl import instances as gfl
from fedrepro.papers.gfl import pictures as gfl_pictures
from fedrepro.reporting import pictures, shown
from fedrepro.reporting.widgets import HEADLESS


def texts(figure: Any) -> str:
    """Everything that is written on a figure."""
    return "\n".join(text.get_text() for ax in figure.axes for text in [*ax.texts, ax.title])


def line(figure: Any, name: str) -> np.ndarray:
    """The values of the line with this name in the legend."""
    axes = figure.axes[0]
    legend = axes.get_legend() or figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    colour = legend.get_lines()[names.index(name)].get_color()
    drawn = [one for one in axes.lines if one.get_color() == colour and len(one.get_ydata()) > 2]
    return np.asarray(drawn[0].get_ydata(), dtype=float)


@pytest.mark.parametrize("paper", ["engine", "fedgat", "fedstruct", "gfl", "feras", "fedsheafhn"])
def test_nothing_is_written_beyond_a_picture(paper: str) -> None:
    """Every text of a method's picture lies on the sheet."""
    figure = import_module(f"fedrepro.papers.{paper}.pictures").method()
    figure.canvas.draw()
    sheet = figure.bbox
    for text in figure.axes[0].texts:
        place = text.get_window_extent()
        assert sheet.x0 <= place.x0 and place.x1 <= sheet.x1 + 1, text.get_text()
        assert sheet.y0 <= place.y0 and place.y1 <= sheet.y1 + 1, text.get_text()


def test_one_notebook_draws_the_picture_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With nobody before the notebook the picture is drawn once, and again after the package has changed."""
    drawn = []

    @pictures.drawn_once
    def method() -> Any:
        drawn.append(pictures.sheet("A method")[0])
        return drawn[-1]

    monkeypatch.setattr(pictures.cache, "package", lambda: f"state {len(states)}")
    monkeypatch.setattr(paths, "cache", lambda: tmp_path)
    states = [0]
    assert method() is drawn[0] and method() is drawn[1]  # somebody may change a figure
    monkeypatch.setenv(HEADLESS, "1")
    first, second = method(), method()
    assert len(drawn) == 3 and first.data == second.data == base64.b64decode(shown.as_png(drawn[2]) or "")
    states.append(1)
    assert method().data == first.data and len(drawn) == 4
    monkeypatch.setattr(pictures.matplotlib, "__version__", "another")
    assert method() and len(drawn) == 5
    other = pictures.drawn_once(lambda: pictures.sheet("Another method")[0])
    assert other().data != first.data


def test_the_batch_is_block_diagonal() -> None:
    """The ring has thirds, the pair halves, and the cross-client edge is not in the drawn matrix."""
    third = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
    wanted = np.zeros((6, 6))
    wanted[:4, :4], wanted[4:, 4:] = third, 0.5
    np.testing.assert_allclose(engine.propagation(), wanted, atol=1e-12)


def test_the_drawn_message_sums_powers() -> None:
    """K1' D^n K1 of the drawn message sums the scores' powers, as the picture says, and its size is written."""
    sent, d = fedgat_pictures.combined()
    h = fedgat_pictures.normal(6, 4, seed=0)
    b1, b2 = fedgat_pictures.normal(2, 1, 4, seed=1)
    x = (b1 @ h[2] + (b2 @ h[:4].T)[0]).numpy()
    for n in (1, 2, 3):
        measured = float(sent.k1 @ torch.linalg.matrix_power(d, n) @ sent.k1)
        np.testing.assert_allclose(measured, (x**n).sum(), rtol=1e-9)
    assert f"{protocol.scalars('matrix', 4, 4)} numbers" in texts(fedgat_pictures.method())


def test_the_drawn_power_is_a_walk() -> None:
    """The full power is that of the dense matrix; pruned to p it has 8 p entries, all of them as before."""
    a = np.eye(8)
    for u, v in fedstruct_pictures.EDGES:
        a[u, v] = a[v, u] = 1
    walk = np.linalg.matrix_power(a / a.sum(1, keepdims=True), 3)
    np.testing.assert_allclose(fedstruct_pictures.power(3), walk, atol=1e-12)
    first = fedstruct_pictures.power(2, 2)
    assert np.count_nonzero(first) == 16
    np.testing.assert_allclose(first[first > 0], np.linalg.matrix_power(a / a.sum(1, keepdims=True), 2)[first > 0])


def test_the_means_of_figure_one() -> None:
    """A becomes the mean of the two hosts that sampled it, B the value of its owner, and C, which no owner sent, 0."""
    rows, own = feras_pictures.figure_one()
    assert rows.mean(own).squeeze(1).tolist() == [2.0, 20.0, 0.0, 2.0, 20.0, 0.0]


def test_the_drawn_collaboration_graph_has_two_groups() -> None:
    """Clients are joined within a group, and two groups of three with two neighbours each are two triangles."""
    pairs = sheaf.nearest(fedsheafhn_pictures.embeddings(), fedsheafhn_pictures.NEIGHBOURS).T.tolist()
    assert sorted(map(tuple, pairs)) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]


def test_the_drawn_propagation_reaches_two_edges_far() -> None:
    """Client 0 gets something of client 4, which is two edges away, and with one step nothing."""
    assert float(gfl_pictures.spread()[0, 4]) > 0 and float(gfl_pictures.spread(steps=1)[0, 4]) == 0


def test_a_series_of_higher_degree_is_closer() -> None:
    """The largest error within the interval, measured on the drawn lines, falls with the degree."""
    errors = []
    for degree in (2, 8, 32):
        figure = fedgat.series(degree, 2.0)
        x = np.linspace(-2.3, 2.3, 401)
        gap = np.abs(line(figure, f"series of degree {degree}") - np.exp(np.where(x > 0, x, 0.2 * x)))
        errors.append(gap[np.abs(x) <= 2].max())
        assert f"{errors[-1]:.3g}" in texts(figure)
    assert errors[0] > errors[1] > errors[2]


def test_features_are_read_off_a_message_without_noise() -> None:
    """Without noise the true features are recovered; with noise as a control they are not."""
    gaps = [float((t["true"] - t["recovered"]).abs().to_numpy().max()) for t in map(fedgat.recovered, (3, 3), (0, 0.5))]
    assert gaps[0] < 1e-3 < gaps[1]


def test_pruning_and_cuts_say_what_they_draw() -> None:
    """The entries kept and the edges within clients are those that are written."""
    assert "p = 2: 16 entries" in texts(fedstruct.pruning(2, 2))
    assert f"{len(fedstruct_pictures.EDGES)} of {len(fedstruct_pictures.EDGES)} edges" in texts(fedstruct.cut(1))
    kept = [int(texts(fedstruct.cut(3, seed)).split(" of 9 edges")[0].split("\n")[-1]) / 9 for seed in range(30)]
    assert abs(np.mean(kept) - 1 / 3) < 0.1


def test_a_leaf_is_rebuilt_without_noise_only() -> None:
    """Two sums that differ in a leaf give its features; the noise of V1 defeats that, as a control."""
    clean, noisy = (line(gfl.rebuilt(2, noise), "shortest difference")[-1] for noise in (0.0, 1.0))
    assert clean > 1 - 1e-9 and noisy < 0.9


def test_propagation_without_a_rest_adds_up_to_less() -> None:
    """A row of the truncated weights has less than one of APPNP's, which add up to the row of a power."""
    sums = {kind: float(gfl_pictures.spread(kind).sum(1).min()) for kind in ("appnp", "truncated")}
    assert sums["truncated"] < sums["appnp"]
    assert f"{sums['truncated']:.2f}" in texts(gfl.propagation())


@pytest.mark.parametrize(("kappa", "hosts"), [(0.4, 3), (0.2, 5)])
def test_a_host_sees_all_but_kappa(kappa: float, hosts: int) -> None:
    """Each host sees a share 1 - kappa of the nodes."""
    assert f"each host sees {round(feras.NODES * (1 - kappa))}" in texts(feras.visible(kappa, hosts))


def test_a_kappa_beyond_the_hosts_is_an_error() -> None:
    """Two hosts cannot each lack more than half of the nodes."""
    with pytest.raises(ArgumentError, match="kappa"):
        feras.visible(0.6, 2)


def test_averaging_every_step_ends_at_the_least_sum() -> None:
    """With q = 1 the average ends at -3/5, and with q = 10 elsewhere."""
    ends = {q: line(feras.averaging(q, 0.2, 200), "average")[-1] for q in (1, 10)}
    assert abs(ends[1] + 0.6) < 1e-9 < 0.01 < abs(ends[10] + 0.6)


def test_clients_at_rest_agree_after_their_maps() -> None:
    """The states end where F_u x_u = F_v x_v, which is not where the states are equal."""
    figure = fedsheafhn.diffusion(2.0, 1.0, 80)
    end = {name: line(figure, name)[-1] for name in ("client 0", "client 1")}
    assert abs(2 * end["client 0"] - end["client 1"]) < 1e-9 < 0.01 < abs(end["client 0"] - end["client 1"])


def test_the_printed_sign_climbs() -> None:
    """With the printed sign the loss rises in every round, and with the corrected one it falls."""
    printed, corrected = (fedsheafhn.server_steps(sign) for sign in (1, -1))
    assert printed == sorted(printed) and corrected == sorted(corrected, reverse=True)
    np.testing.assert_allclose(line(fedsheafhn.two_signs(), "as printed"), printed)
