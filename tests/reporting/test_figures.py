"""The plot forms, and files that come out the same every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedrepro import paths
from fedrepro.errors import ArgumentError, StoreError
from fedrepro.reporting import exhibits, figures, files
from fedrepro.reporting.compare import judge_table
from fedrepro.reporting.layout import MARKS
from fedrepro.reporting.statistics import interval

FORMS = ("curves", "dots", "bars", "heat", "slopes", "boxes")


def sweep() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {
                "clients": clients,
                "seed": seed,
                "method": method,
                "test": 0.8 - drop * clients + rng.normal(0, 0.01),
            }
            for method, drop, seeds in (("FedGAT", 0.0, 3), ("DistGAT", 0.01, 5))
            for clients in (1, 5, 10, 20)
            for seed in range(seeds)
        ]
    )


def compared() -> pd.DataFrame:
    cells = exhibits.published("fedgat")
    cells = cells[cells["exhibit"] == "FG-T1"]
    ours = [
        {
            "dataset": d,
            "method": "FedGAT",
            "clients": 10,
            "partition": "dirichlet(beta=1)",
            "seed": s,
            "test": 0.8,
        }
        for d in ("Cora", "CiteSeer")
        for s in range(3)
    ]
    return judge_table(pd.DataFrame(ours), cells)


def draw(form: str) -> Figure:
    frame = sweep()
    if form == "dots":
        return figures.dots(compared(), title="Table 1")
    if form == "heat":
        return figures.heat(np.arange(6.0).reshape(2, 3), ["a", "b"], [1, 2, 3], "count")
    if form == "boxes":
        return figures.boxes(frame, "method", "test")
    drawing = {"curves": figures.curves, "bars": figures.bars, "slopes": figures.slopes}[form]
    return drawing(frame, "clients", "test", "method")


def named(figure: Figure) -> list[str]:
    """Return the entries of the legend that stands under the axes."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("form", FORMS)
def test_forms_draw_and_leave_no_figure_open(form: str) -> None:
    """Every form returns a figure with something on it, closed for pyplot so that nothing shows it twice."""
    figure = draw(form)
    assert any(axes.has_data() for axes in figure.axes)
    assert not plt.get_fignums()


def test_curves_show_mean_and_interval() -> None:
    """The line is the mean over runs, the band its t interval, and the legend counts the runs."""
    frame = sweep()
    axes = figures.curves(frame, "clients", "test", "method").axes[0]
    scores = frame[(frame["method"] == "FedGAT") & (frame["clients"] == 5)]["test"]
    assert axes.lines[0].get_ydata()[1] == pytest.approx(scores.mean())
    edge = axes.collections[0].get_paths()[0].vertices
    ends = edge[edge[:, 0] == 5][:, 1]
    assert (ends.min(), ends.max()) == pytest.approx(interval(scores)[1:3])
    assert named(axes.figure) == ["FedGAT (3 runs)", "DistGAT (5 runs)"]


def test_intervals_of_scores_end_where_scores_do() -> None:
    """Bands, whiskers and prediction intervals are cut at 1 or 100; those of other numbers are not."""
    rows = [{"n": n, "m": "a", "seed": s, "test": v} for n in (1, 2) for s, v in enumerate((0.2, 1.0, 0.9))]
    frame = pd.DataFrame(rows).assign(percent=lambda f: 100 * f["test"], points=lambda f: 100 * f["test"])
    for column, top in (("test", 1.0), ("percent", 100.0)):
        (band,) = figures.curves(frame, "n", column, "m").axes[0].collections
        assert band.get_paths()[0].vertices[:, 1].max() == top
        lines = figures.bars(frame, "n", column, "m").axes[0].lines
        assert max(y for line in lines for y in line.get_ydata()) == top
    (band,) = figures.curves(frame, "n", "points", "m").axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() > 100
    wide = compared().assign(half95=60.0)
    for axes in figures.dots(wide).axes:
        bars = [segment for one in axes.collections if hasattr(one, "get_segments") for segment in one.get_segments()]
        assert all(0 <= x <= 1 for segment in bars if len(segment) for x in segment[:, 0] if np.isfinite(x))
    assert "cut where no score can be" in texts(figures.dots(wide))


def test_a_line_that_another_covers_is_wider() -> None:
    """Two lines in one place are both seen, and one that runs elsewhere keeps its width."""
    frame = pd.DataFrame([{"x": x, "m": m, "y": y} for m, y in (("a", 1.0), ("b", 0.0), ("c", 1.0)) for x in (1, 2)])
    first, other, last = figures.curves(frame, "x", "y", "m").axes[0].lines
    assert first.get_linewidth() > last.get_linewidth() == other.get_linewidth()


def test_panels_of_a_row_can_have_one_axis() -> None:
    """With `beside`, two panels whose values differ have the same limits."""
    frame = sweep().assign(panel=lambda f: f["method"])
    for beside in (False, True):
        figure = figures.panels(
            frame, "panel", figures.curves, by="method", x="clients", y="test", beside=beside, title="two"
        )
        assert figure is not None
        first, second = (axes.get_ylim() for axes in figure.axes)
        assert (first == second) == beside


def test_colours_can_be_those_of_an_order() -> None:
    """A line or bar has the colour of its place in the order, and names without rows none."""
    order = ["Local", "DistGAT", "FedGAT"]
    axes = figures.curves(sweep(), "clients", "test", "method", order=order).axes[0]
    assert [line.get_color() for line in axes.lines if len(line.get_xdata())] == figures.COLOURS[1:3]
    axes = figures.bars(sweep(), "clients", "test", "method", order=order).axes[0]
    assert named(axes.figure) == ["DistGAT (5 runs)", "FedGAT (3 runs)"]


def test_points_stand_where_bars_would_and_need_no_zero() -> None:
    """Points have the means and places of the bars, and their axis does not begin at zero."""
    bars, points = (figures.bars(sweep(), "clients", "test", "method", points=p).axes[0] for p in (False, True))
    drawn = [bar for container in bars.containers for bar in container]
    tops, middles = [bar.get_height() for bar in drawn], [bar.get_x() + bar.get_width() / 2 for bar in drawn]
    marked = [line for line in points.lines if line.get_marker() not in ("None", "", None) and len(line.get_ydata())]
    assert [y for line in marked for y in line.get_ydata()] == pytest.approx(tops)
    assert [x for line in marked for x in line.get_xdata()] == pytest.approx(middles)
    assert bars.get_ylim()[0] <= 0 < points.get_ylim()[0]


def test_curves_of_single_runs_have_no_band() -> None:
    """One run has no interval, and none is drawn."""
    axes = figures.curves(sweep().query("seed == 0"), "clients", "test", "method").axes[0]
    assert not axes.collections
    assert "(1 run)" in texts(axes.figure)
    with pytest.raises(ArgumentError, match="Did you mean 'range'"):
        figures.curves(sweep(), "clients", "test", "method", band="ranges")


def test_forms_draw_into_given_axes() -> None:
    """Given axes, a form draws there, so that several make one figure."""
    figure, axes = plt.subplots(1, 2)
    assert figures.curves(sweep(), "clients", "test", "method", axes=axes[0]) is figure
    assert axes[0].has_data() and not axes[1].has_data()
    plt.close(figure)


def test_dots_mark_every_cell() -> None:
    """Each panel has one verdict mark a cell, published points at the printed values."""
    frame = compared()
    figure = figures.dots(frame)
    for axes, (name, group) in zip(figure.axes, frame.groupby("dataset", sort=False), strict=True):
        assert axes.get_title() == (name if group["runs"].any() else f"{name}\nno run of ours")
        assert [text.get_text() for text in axes.texts] == [MARKS[name] for name in group["verdict"]]
        assert list(axes.lines[0].get_xdata()) == list(group["published_mean"])
    assert "(3 runs)" in texts(figure)
    named = figures.dots(frame.assign(runs=[1] * len(frame)), rows=("method", "clients"), value="accuracy (percent)")
    assert named.axes[0].get_ylabel() == "method, clients" and "accuracy (percent)" in texts(named)
    size, small = (each.axes[0].collections[-1].get_sizes().max() for each in (figure, named))
    assert small < size  # a single run has no interval, and looks so


def test_dots_draw_beside_a_peak_what_is_compared_with_it() -> None:
    """Beside a printed peak our point is the expected largest of as many runs, with an interval in the same unit."""
    cells = exhibits.published("fedgat")
    cell = cells[cells["exhibit"].eq("FG-T1") & cells["method"].eq("GCN") & cells["dataset"].eq("Cora")]
    same = {"dataset": "Cora", "method": "GCN", "clients": 1, "partition": "single"}
    frame = judge_table(pd.DataFrame([{**same, "seed": seed, "test": 0.80 + 0.01 * seed} for seed in range(3)]), cell)
    row = frame.iloc[0]
    figure = figures.dots(frame)
    bars, points = figure.axes[0].collections[-2:]
    (place, _), (ends,) = points.get_offsets()[0], bars.get_segments()
    assert place == pytest.approx(row["published_mean"] + row["difference"] / 100) and place > row["ours_mean"] + 0.005
    assert ends[:, 0] == pytest.approx([place - row["half95"] / 100, min(place + row["half95"] / 100, 1)])
    assert "expected largest" in texts(figure) and "expected largest" not in texts(figures.dots(frame.assign(why="")))


def test_matrices_that_are_compared_share_their_colours() -> None:
    """With the same limits one value has one colour in two figures, and NaN is white."""
    colours = []
    for largest in (1.0, 3.0):
        mesh = figures.heat([[0.0, 1.0], [np.nan, largest]], limits=(0.0, 3.0)).axes[0].collections[0]
        mesh.update_scalarmappable()
        colours.append(mesh.get_facecolors())
    assert (colours[0][1] == colours[1][1]).all() and colours[0][2][3] == 0.0  # a masked cell is transparent


def test_panels_of_one_line_each_say_what_the_grey_lines_are() -> None:
    """A small panel a line keeps the colours of an order that figures share, and its legend names what is behind."""
    figure = figures.apart(sweep(), "clients", "test", "method", order=["Other", "DistGAT", "FedGAT"])
    assert [axes.get_title().partition("\n")[0] for axes in figure.axes] == ["DistGAT", "FedGAT"]
    for place, axes in enumerate(figure.axes, 1):
        assert figures.COLOURS[place] in {line.get_color() for line in axes.lines}
    assert "the lines of the other panels" in texts(figure)
    three = pd.concat([sweep(), sweep().iloc[:12].assign(method="Third")])
    axes = figures.apart(three, "clients", "test", "method", wide=2).axes
    below = [ax.get_xlabel() if ax.xaxis.label.get_visible() else "" for ax in axes]
    assert below == ["", "clients", "clients"]  # each below the lowest panel of its column


def test_slopes_print_the_exponent() -> None:
    """Points on 3 x^2 give exponent 2.00."""
    frame = pd.DataFrame({"x": [1, 2, 4, 8], "y": [3, 12, 48, 192], "which": "cost"})
    assert "cost: exponent 2.00" in texts(figures.slopes(frame, "x", "y", "which"))


def test_heat_puts_the_first_row_on_top() -> None:
    """The y axis runs downwards, and each number stands in its cell."""
    axes = draw("heat").axes[0]
    assert axes.yaxis_inverted()
    assert [text.get_text() for text in axes.texts] == list("012345")
    with pytest.raises(ArgumentError, match="two-dimensional"):
        figures.heat([1, 2])


# ---------------------------------------------------------------------------------------------------------
# files


def test_csv_has_six_digits_and_whole_integers() -> None:
    """Floats have six significant digits, integers all of theirs, missing values none; lines end in LF."""
    frame = pd.DataFrame(
        {
            "a": [1 / 3, -0.0, 123456789.0],
            "b": [1234567890123, 2, 3],
            "c": ["x,y", None, "< 1e-12"],
            "d": pd.array([1, None, 3], dtype="Int64"),
            "e": [[1, 2], {"k": 1}, True],
        },
        index=[7, 8, 9],
    )
    assert files.csv_text(frame) == (
        'a,b,c,d,e\n0.333333,1234567890123,"x,y",1,"[1, 2]"\n0,2,,,"{""k"": 1}"\n1.23457e+08,3,< 1e-12,3,True\n'
    )
    assert files.csv_text(pd.DataFrame({"a": []})) == "a\n"


def test_identities_print_as_below_rounding() -> None:
    """An error below 1e-12, of either sign, prints as such; a larger one as its digits; NaN is not hidden."""
    assert [files.machine(value) for value in (0.0, -9e-13, 1e-12, 0.5)] == [
        "< 1e-12",
        "< 1e-12",
        "1e-12",
        "0.5",
    ]
    assert files.machine(float("nan")) == "nan"


def test_save_writes_both_files(tmp_path: Path) -> None:
    """CSV and SVG lie under the paper's folder, and no partial file stays."""
    written = files.save("fedgat", "FG-F2a", sweep(), draw("curves"), tmp_path)
    names = ["FG-F2a.csv", "FG-F2a.svg"]
    assert [path.name for path in written] == names
    assert sorted(os.listdir(tmp_path / "fedgat")) == sorted(names)
    assert files.save("fedgat", "checks", sweep(), folder=tmp_path) == [tmp_path / "fedgat" / "checks.csv"]


def test_finish_names_the_axes_and_renews_the_legend() -> None:
    """Axes get their names, the legend its numbers of runs or none, no line is lost, and the figure grows once."""
    frame = pd.DataFrame({"x": [1, 2, 1, 2], "y": [0.1, 0.2, 0.3, 0.4], "line": list("uuvv")})
    figure = figures.curves(frame, "x", "y", "line")
    height = figure.get_figheight()
    assert figures.finish(figure, counts=False, ylabel="accuracy") is figure
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel(), figure.get_figheight()) == ("x", "accuracy", height)
    assert named(figure) == ["u", "v"] and ax.get_legend() is None
    figures.finish(figure)
    assert named(figure) == ["u (1 run)", "v (1 run)"]
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().y1 < ax.get_tightbbox().y0
    assert figure.get_figheight() == height


def test_save_goes_to_the_figures_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder, exhibits go where FEDREPRO_FIGURES points."""
    monkeypatch.setenv("FEDREPRO_FIGURES", str(tmp_path))
    assert files.save("gfl", "GFL-T1", sweep()) == [tmp_path / "gfl" / "GFL-T1.csv"]


def test_save_gives_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    """Two processes, with different hash seeds, write identical files for every form."""
    for seed in ("1", "2"):
        program = (
            "import sys; from pathlib import Path; import test_figures as t\n"
            "for form in t.FORMS: t.files.save('fedgat', form, t.sweep(), t.draw(form), Path(sys.argv[1]))"
        )
        environment = os.environ | {"PYTHONHASHSEED": seed, "MPLBACKEND": "agg"}
        command = [sys.executable, "-c", program, str(tmp_path / seed)]
        subprocess.run(command, cwd=Path(__file__).parent, env=environment, check=True, timeout=120)
    first, second = tmp_path / "1" / "fedgat", tmp_path / "2" / "fedgat"
    assert len(list(first.iterdir())) == 2 * len(FORMS)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name
    svg = (first / "curves.svg").read_text()
    assert "<dc:date>" not in svg and "<text" not in svg


def test_drawing_and_saving_again_changes_nothing(tmp_path: Path) -> None:
    """The bytes do not depend on what was drawn before, nor on the user's own style."""
    files.save("fedgat", "a", sweep(), draw("dots"), tmp_path)
    draw("curves")
    with plt.rc_context({"font.size": 20, "svg.hashsalt": None, "savefig.bbox": "tight", "axes.facecolor": "red"}):
        files.save("fedgat", "b", sweep(), draw("dots"), tmp_path)
    folder = tmp_path / "fedgat"
    assert (folder / "a.svg").read_bytes() == (folder / "b.svg").read_bytes()


def test_drawings_do_not_depend_on_the_last_bits_of_a_layout(tmp_path: Path) -> None:
    """Axes that differ by rounding alone give the same file; each keeps the clip path of its own."""
    for name, nudge in (("a", 0.0), ("b", 1e-15)):
        figure = Figure()
        for left in (1 / 7, 4 / 7):  # no finite decimals: nothing lies on the edge of rounding
            figure.add_axes((left + nudge, 0.1, 0.3, 0.8)).plot([0, 1], [0, 1])
        files.save("gfl", name, sweep(), figure, tmp_path)
    drawn = [(tmp_path / "gfl" / f"{name}.svg").read_text() for name in ("a", "b")]
    assert drawn[0] == drawn[1]
    for clip in ("clip0", "clip1"):
        assert drawn[0].count(f'clip-path="url(#{clip})"') == drawn[0].count(f'<clipPath id="{clip}">') == 1


@pytest.mark.parametrize(("paper", "exhibit"), [("fedgat", "../x"), ("", "FG-T1"), ("fedgat", ".hidden")])
def test_names_stay_inside_the_folder(paper: str, exhibit: str, tmp_path: Path) -> None:
    """A name that would leave its folder is an error."""
    with pytest.raises(ArgumentError, match="letters, digits"):
        files.save(paper, exhibit, sweep(), folder=tmp_path)


def test_a_file_is_on_the_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced before it takes the old one's name, and the folder after."""
    done: list[str] = []
    monkeypatch.setattr(paths, "sync", lambda place: done.append(place.name))
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("renamed"), rename(*names)))
    paths.replace_file(tmp_path / "new" / "a.csv", b"1")
    assert done == [tmp_path.name, f".a.csv.{os.getpid()}.partial", "renamed", "new"]


def test_a_file_that_cannot_be_written_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the error names the file, the old content stays, and no partial file."""
    files.save("fedgat", "FG-T1", sweep(), folder=tmp_path)
    before = (tmp_path / "fedgat" / "FG-T1.csv").read_bytes()

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"FG-T1\.csv: No space left on device"):
        files.save("fedgat", "FG-T1", sweep().head(1), folder=tmp_path)
    assert (tmp_path / "fedgat" / "FG-T1.csv").read_bytes() == before
    assert os.listdir(tmp_path / "fedgat") == ["FG-T1.csv"]


@pytest.mark.parametrize("rows", ["none", "without numbers"])
def test_a_frame_without_rows_says_so(rows: str) -> None:
    """A form with nothing to draw says it in the figure, and does not warn of colours and names that it lacks."""
    frame = pd.DataFrame({"x": [1, 2], "y": [0.1, 0.2], "by": ["a", "b"]})
    frame = frame[:0] if rows == "none" else frame.assign(y=float("nan"))
    for form, names in ((figures.curves, ["by"]), (figures.bars, ["by"]), (figures.boxes, [])):
        drawn = form(frame, "x", "y", *names)
        assert "no rows" in [text.get_text() for text in drawn.axes[0].texts], form
    if rows == "none":
        assert figures.slopes(frame, "x", "y", "by").axes[0].texts[0].get_text() == "no rows"
        assert figures.panels(frame, "by", figures.bars, by="by", x="x", y="y") is None
