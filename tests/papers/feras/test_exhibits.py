"""Feras's grids, tables and claims: what is asked for, which runs a cell shows, and that claims come out either way."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from feras_tables import GAINS, checks, get_from, noise, prepared, row, stored, table2

from fedrepro.papers.feras.exhibits import claims, curves, grids, tables
from fedrepro.papers.feras.exhibits.grids import FERAS, METHODS
from fedrepro.reporting import exhibits
from fedrepro.reporting.claims import claims_table, judge_claim
from fedrepro.reporting.exhibits import registered
from fedrepro.reporting.rule import NOT_TESTED
from fedrepro.reporting.statistics import interval
from fedrepro.runs.run import Run

OURS = {name: exhibit for name, exhibit in registered().items() if exhibit.paper == "feras"}


def test_every_exhibit_is_asked_for() -> None:
    """All 23 exhibits of the list have their runs, but for none of them twice in one profile."""
    listed = {row["id"] for row in exhibits.listed("feras") if row["kind"] != exhibits.OURS}
    assert listed <= set(OURS)
    for exhibit in OURS.values():
        runs = exhibit.runs("paper")
        assert len({run.key for run in runs}) == len(runs) > 0


def test_standins_and_graphs_keep_their_names() -> None:
    """Table 2 asks for the paper's graphs, their stand-ins and five real graphs; smoke for only a stand-in."""
    wanted = {run.dataset for run in grids.table2()}
    assert wanted == {*grids.REAL, *grids.PUBLISHED, *grids.STANDINS}
    assert {run.dataset for run in exhibits.find("FR-T2").runs("smoke")} == {"Cora~standin"}
    assert {run.method for run in exhibits.find("FR-T2").runs("smoke")} == set(METHODS)
    assert all(run.options["rounds"] >= 2 for run in exhibits.find("FR-T2").runs("smoke"))


def test_the_papers_graphs_have_the_budgets_of_graphsaint() -> None:
    """Its configurations name nodes, edges, roots with their depth, and frontiers; other graphs have shares."""
    drawn = ("budget", "depth", "frontier", "coverage")
    runs = {(run.dataset, run.options["sampler"]): run.options for run in grids.table2()}
    budgets = {key: tuple(options.get(name, 0) for name in drawn) for key, options in runs.items()}
    assert budgets["Flickr", "rw"] == (6000, 2, 0, 25) and budgets["Flickr", "mrw"] == (12000, 0, 3000, 25)
    assert budgets["Reddit", "rw"] == (2000, 4, 0, 50) and budgets["Reddit", "edge"] == (6000, 0, 0, 50)
    assert budgets["PPI", "node"] == (6000, 0, 0, 50) and budgets["Photo", "rw"] == (0, 0, 0, 0)
    assert {d for (d, _), numbers in budgets.items() if numbers[0]} == set(grids.PUBLISHED)


def test_seed_zero_covers_every_cell() -> None:
    """Every cell of Table 2 has seed 0; Photo, Computers and PubMed have at least three, the others at least one."""
    runs = grids.table2()
    first = {run for run in runs if run.seed == 0}
    assert {run.replace(seed=0) for run in runs} == first
    assert len(first) == (8 * 6 + 3 * 3) * len(grids.TABLE_KAPPAS) * len(grids.HOSTS)
    for dataset in ("Photo", "Computers", "PubMed"):
        assert {0, 1, 2} <= {run.seed for run in runs if run.dataset == dataset}


def test_averages_fall_on_ends_of_rounds() -> None:
    """q is a multiple of the epochs of a round in every training run that averages weights."""
    runs = [run for exhibit in OURS.values() for run in exhibit.runs("paper") if run.task == "train"]
    shared = [run for run in runs if run.method != "GraphSAINT"]
    assert shared and all(int(run.options["q"]) % int(run.options["local_epochs"]) == 0 for run in shared)


def test_rows_carry_the_paper_names() -> None:
    """A run is named as the paper's row, with kappa in percent."""
    runs = grids.cell("GraphSAINT", "Photo", 40, 3, [0], "mrw") + grids.cell("Feras", "Photo", 60, 5, [0])
    frame = prepared(pd.DataFrame([row(run, 0.5) for run in runs]))
    assert frame.row.tolist() == ["GraphSAINT-MRW", "Feras (N=5)"]
    assert frame.setting.tolist() == ["kappa=40%", "kappa=60%"] and frame.hosts.tolist() == [3, 5]


def test_gains_and_claims_have_the_random_walk() -> None:
    """Another sampler does not count, however good it is and often repeated; Table 2 keeps all isolated rows."""
    offsets = {("GraphSAINT", "edge"): 0.2, ("Feras", "node"): 0.1, ("Feras", "rw"): 0.02}
    rows = []
    for method in METHODS:
        for sampler in ("node", "rw", "edge"):
            runs = grids.cell(method, "Photo", 40, 3, range(3 if sampler == "rw" else 5), sampler)
            rows += [row(run, 0.5 + noise(run) + offsets.get((method, sampler), 0.0)) for run in runs]
    frame = prepared(pd.DataFrame(rows))
    frames = {"FR-T2": frame, "FR-T2-samplers": frame}
    used = claims.table2(lambda name: frames[name])
    assert set(used.sampler) == {"rw"} and set(used.method) == set(METHODS)
    assert claims.ahead(used).loc["Photo", 40, 3]["Feras", "GraphSAINT"].tolist() == pytest.approx([0.02] * 3)
    gains = tables.gains(frame).dropna(subset=["ours"]).set_index("gain")
    assert gains.loc["Feras over GraphSAINT", "ours"] == pytest.approx(0.02)
    shown = tables.main_reading(frame, "FR-T2").groupby("method")["sampler"].unique().map(set).to_dict()
    assert shown == {"GraphSAINT": {"node", "rw", "edge"}, "GraphSAINT-SW": {"rw"}, "Feras": {"rw"}}
    assert tables.random_walk(frame.iloc[:0]).empty


@pytest.mark.parametrize(
    ("fall", "verdict"),
    [((-0.2, -0.2, -0.1), "holds"), ((-0.2, -0.2, 0.1), "mixed"), ((0.2, 0.2, 0.1), "fails")],
)
def test_every_method_loses_accuracy_as_hosts_see_less(fall: tuple[float, ...], verdict: str) -> None:
    """The claim FR-H9 holds if the scores of all methods fall with kappa; 0.2 for all of kappa is 2 points for 10%."""
    kappas = table2(dict(zip(METHODS, fall)), ("Photo",), lambda: grids.sensitivity(grids.KAPPAS))
    get = get_from(kappas.iloc[:0], FR_F4=kappas)
    slopes = tables.score_slopes(get("FR-F4")).groupby("method")["slope"].mean()
    assert slopes[list(METHODS)].tolist() == pytest.approx([10 * each for each in fall])
    (claim,) = (each for each in claims.CLAIMS if each.id == "FR-H9")
    text, judged = claim.judge(get)
    assert judged == verdict and f"Photo, GraphSAINT, per 10% of kappa {10 * fall[0]:+.1f}" in text


def test_the_lowest_cell_is_below_only_if_one_surely_is() -> None:
    """Below 0 with one cell clearly below; above 0 only with all above; open where one is; none without two seeds."""
    up, down, wide = (pd.Series([m - s, m, m + s]) for m, s in ((0.02, 0.001), (-0.02, 0.001), (0.01, 0.02)))
    below, above, either = (claims.lowest(cells) for cells in ([up, down], [up, up], [up, wide]))
    assert below is not None and below.high < 0 and below.mean == pytest.approx(-0.02)
    assert above is not None and above.low > 0 and above.runs == 3
    assert below.high == interval(down, level=1 - 0.05 / 2).high  # Bonferroni's level for two cells
    assert either is not None and either.low < 0 < either.high
    assert claims.lowest([up.iloc[:1]]) is None
    assert claims.lowest([wide]) == interval(wide)


def test_standins_are_compared_with_nothing() -> None:
    """A stand-in and a graph that the paper lacks have no published number; the paper's graph has its verdict."""
    graphs = ("PPI", "PPI~standin", "Photo")
    table = tables.table2(prepared(table2(GAINS, graphs)))
    cells = table[table.row.eq("Feras (N=3)") & table.setting.eq("kappa=60%")].set_index("dataset")
    assert cells.loc["PPI", "published"] == "0.895 ± 0.008" and cells.loc["PPI", "runs"] == 5
    assert cells.loc["PPI", "verdict"] != NOT_TESTED
    assert cells.loc["PPI~standin", "verdict"] == NOT_TESTED and cells.loc["Photo", "verdict"] == ""
    assert cells.loc[["PPI~standin", "Photo"], "published"].isna().all()
    assert len(table[table.published.notna() & table.exhibit.eq("FR-T2")]) == 48
    assert "[0.895 ± 0.008]" in tables.layout(table).loc[("kappa=60%", "Feras (N=3)"), "PPI (fraction)"]


def test_printed_gains_are_those_of_the_table() -> None:
    """Gains are differences of printed cells, and only on PPI at 60% does Feras gain more than a point (FR-Q1)."""
    gaps = tables.published_gains().set_index(["dataset", "setting", "hosts", "gain"]).published
    assert gaps["PPI", "kappa=40%", 3, "Feras over GraphSAINT"] == pytest.approx(0.001)
    assert gaps["PPI", "kappa=60%", 3, "Feras over GraphSAINT"] == pytest.approx(0.076)
    assert gaps["PPI", "kappa=60%", 3, "GraphSAINT-SW over GraphSAINT"] == pytest.approx(-0.036)
    assert gaps["Flickr", "kappa=40%", 5, "Feras over GraphSAINT"] == pytest.approx(-0.004)
    assert math.isnan(gaps["Reddit", "kappa=60%", 5, "Feras over GraphSAINT"])
    large = gaps[gaps.gt(0.01)].reset_index()
    assert set(large[large.gain.eq("Feras over GraphSAINT")].setting) == {"kappa=60%"}
    text = claims.printed_gains()
    assert "of 10 cells" in text and "only on PPI kappa=60%)" in text


def test_gains_are_paired_over_seeds() -> None:
    """With a common noise of every seed the gain is exact: 0.03 kappa over isolation, at the sampler that all have."""
    gains = tables.gains(prepared(table2(GAINS)))
    ours = gains.set_index(["dataset", "setting", "hosts", "gain"])
    cell = ours.loc["Photo", "kappa=60%", 5, "Feras over GraphSAINT"]
    assert cell.ours == pytest.approx(0.018) and cell.low == pytest.approx(0.018) and cell.runs == 5


@pytest.mark.parametrize(
    ("gains", "verdicts"),
    [
        (GAINS, ["holds", "holds"]),
        ({"GraphSAINT": 0.0, "GraphSAINT-SW": 0.05, "Feras": -0.03}, ["fails", "fails"]),
        ({"GraphSAINT": 0.0, "GraphSAINT-SW": -0.1, "Feras": -0.03}, ["mixed", "holds"]),
        ({"GraphSAINT": 0.0, "GraphSAINT-SW": 0.005, "Feras": 0.03}, ["holds", "mixed"]),
    ],
)
def test_claims_come_out_either_way(gains: dict[str, float], verdicts: list[str]) -> None:
    """Feras gains and weights lose, the reverse, both lose, and weights gain less than a point and never lose; and the
    same with the other layer and on visible nodes.
    """
    kappas = table2(gains, asked=lambda: grids.sensitivity(grids.KAPPAS))
    get = get_from(table2(gains), FR_F4=kappas, FR_T2_saint=table2(gains, asked=grids.saint))
    judged = claims_table(claims.CLAIMS, get, "feras").set_index("id")
    names = ["FR-H3", "FR-H4"], ["FR-H3-saint", "FR-H4-saint"], ["FR-H3-visible"]
    assert [judged.verdict[list(ids)].tolist() for ids in names] == [verdicts, verdicts, verdicts[:1]]
    evidence = judged.evidence["FR-H3"]
    assert "Photo, 60%, N=3, over GraphSAINT-SW" in evidence and "printed (FR-Q1)" in evidence
    assert "PubMed, over GraphSAINT, per 10% of kappa" in evidence and "60% minus 40%" not in evidence


def test_standins_speak_for_no_claim() -> None:
    """Scores on stand-ins, and an empty store, decide nothing."""
    for frame in (table2(GAINS, ("PPI~standin",)), table2(GAINS).iloc[:0]):
        judged = claims_table(claims.CLAIMS, get_from(frame), "feras")
        assert set(judged.verdict) == {"cannot be checked here"}


def test_a_failed_check_and_runs_in_favour_are_mixed() -> None:
    """The verdict of claims 1 and 2 is over both the theorem's checks and the runs."""
    join = claims.with_checks
    assert join(("runs", "holds"), {"a": True}) == ("a holds; runs", "holds")
    assert join(("runs", "holds"), {"a": True, "b": False})[1] == "mixed"
    for open_verdict in ("undecided", "cannot be checked here"):
        assert join(("runs", open_verdict), {"a": False})[1] == "fails"
        assert join(("runs", open_verdict), {})[1] == open_verdict
    assert join(("runs", "fails"), {})[1] == "fails"


KEYS = {"dataset": "Photo", "sampler": "rw", "kappa": 40, "hosts": 5, "row": ""}


def scored(method: str, shape: Callable[[int], float], q: int = 10, seeds: int = 2, epochs: int = 100) -> pd.DataFrame:
    """Points of runs with the same curve on validation and on test nodes, but for the seed."""
    at = pd.MultiIndex.from_product([range(seeds), range(1, epochs + 1)], names=["seed", "epoch"]).to_frame(index=False)
    values = [shape(t) + 0.001 * seed for seed, t in at.itertuples(index=False)]
    return at.assign(**KEYS, method=method, q=q, **{"F1-micro": values, "validation": values})


def both(feras: Callable[[int], float], other: Callable[[int], float]) -> pd.DataFrame:
    return pd.concat([scored("Feras", feras, epochs=8), scored("GraphSAINT-SW", other, epochs=8)])


def saved(feras: Callable[[int], float], other: Callable[[int], float]) -> pd.DataFrame:
    return curves.epochs_saved(both(feras, other))


def test_gaps_are_taken_seed_by_seed() -> None:
    """A shift of all methods of a seed cancels; epochs and seeds that one method lacks have no gap."""
    rows = [
        {"dataset": "Photo", "kappa": 40, "hosts": 3, "seed": seed, "epoch": epoch, "method": method, "F1-micro": score}
        for seed, level in ((0, 0.5), (1, 0.9))
        for epoch in (5, 10)
        for method, score in ((FERAS, level + 0.02), ("GraphSAINT", level), ("GraphSAINT-SW", level - 0.01 * epoch))
        if (seed, epoch, method) != (1, 10, "GraphSAINT")
    ]
    gaps = curves.gaps(pd.DataFrame(rows)).set_index(["over", "epoch", "seed"])["gap"]
    steady = {("over GraphSAINT", epoch, seed): 2 for epoch, seed in ((5, 0), (5, 1), (10, 0))}
    sinking = {("over GraphSAINT-SW", epoch, seed): 2 + epoch for epoch in (5, 10) for seed in (0, 1)}
    assert gaps.to_dict() == pytest.approx(steady | sinking)
    assert curves.gaps(pd.DataFrame(rows).query("method != @FERAS")).empty


def test_a_curve_above_another_everywhere_is_not_slower() -> None:
    """Five points above at each epoch, on a plateau as much higher: the other's best is reached earlier, by hand."""
    low = [0.80, 0.83, 0.835, 0.836, 0.837, 0.838, 0.839, 0.84]
    epochs = saved(lambda t: low[t - 1] + 0.05, lambda t: low[t - 1])
    assert epochs.saved.tolist() == [7, 7] and epochs.feras.tolist() == [1, 1] and epochs.other.tolist() == [8, 8]
    epochs = saved(lambda t: low[t - 1], lambda t: low[t - 1] + 0.05)
    assert epochs.saved.tolist() == [-7, -7] and epochs.missed.all()  # the other way round
    table = curves.speed(both(lambda t: low[t - 1] + 0.05, lambda t: low[t - 1]))
    assert table.saved.tolist() == [7] and table.runs.tolist() == [2] and table["never reached"].tolist() == [0]


def test_a_flat_curve_is_compared_with_its_own_score() -> None:
    """A method that never learns is early at the score it starts with, misses the rest, and ties with its like."""
    flat, rising = (lambda t: 0.5), (lambda t: 0.3 + 0.05 * t)
    early = saved(flat, rising)
    assert (early.saved == 3).all() and early.missed.all() and early.other.tolist() == [4, 4]
    assert (saved(flat, flat).saved == 0).all()  # a tie
    late = saved(rising, flat)
    assert late.feras.tolist() == [4, 4] and (late.saved == -3).all() and not late.missed.any()
    shape = curves.pace(scored("Feras", flat)).pace
    assert shape.tolist() == pytest.approx([1.0, 1.0])  # why pace decides nothing


def test_a_higher_plateau_is_earlier_at_a_common_score_and_not_in_its_own_rise() -> None:
    """With one time constant and a plateau two points higher Feras saves many epochs at a common score, none of its own
    rise; with half the time constant it saves epochs of its own rise too.
    """
    epochs, seeds = np.arange(1, 141, 5), range(400)
    rng = np.random.default_rng(0)

    def run(method: str, plateau: float, steps: float) -> pd.DataFrame:
        at = pd.MultiIndex.from_product([seeds, epochs], names=["seed", "epoch"]).to_frame(index=False)
        scores = plateau * (1 - np.exp(-at["epoch"] / steps)) + rng.normal(0, 0.002, len(at))
        return at.assign(**KEYS, method=method, q=10, validation=scores)

    def gain(plateau: float, steps: float) -> tuple[float, float]:
        epochs_saved = curves.epochs_saved(pd.concat([run("Feras", plateau, steps), run("GraphSAINT-SW", 0.80, 20.0)]))
        return float(epochs_saved["saved"].mean()), float(epochs_saved["own saved"].mean())

    common, rise = gain(0.82, 20.0)
    assert common > 15 and abs(rise) < 1
    common, rise = gain(0.82, 10.0)
    assert common > 15 and rise > 15


def test_equal_methods_save_nothing_on_average() -> None:
    """One curve with independent noise: no epochs saved on average, few wrong verdicts, and the roles can be swapped.

    The former rule, by the other run's highest score or else all epochs, loses a quarter of the epochs here.
    """
    experiments, cells, seeds, epochs = 40, 8, 3, np.arange(1, 41, 5)
    rng = np.random.default_rng(0)
    rows = pd.MultiIndex.from_product(
        [range(experiments), range(cells), range(seeds), ("Feras", "GraphSAINT-SW"), epochs],
        names=["q", "kappa", "seed", "method", "epoch"],
    ).to_frame(index=False)
    scores = 0.8 - 0.1 * np.exp(-rows["epoch"] / 8) + rng.normal(0, 0.005, len(rows))
    points = rows.assign(**{**KEYS, "kappa": rows["kappa"] + 100 * rows["q"]}, validation=scores)
    pairs = curves.epochs_saved(points)
    assert abs(pairs["saved"].mean()) < 1.5
    swapped = points.assign(method=points["method"].map({"Feras": "GraphSAINT-SW", "GraphSAINT-SW": "Feras"}))
    assert curves.epochs_saved(swapped)["saved"].tolist() == (-pairs["saved"]).tolist()
    former = np.where(pairs["missed"], -epochs.max(), pairs["saved"])
    assert former.mean() < -epochs.max() / 4
    verdicts = {"new": 0, "former": 0}
    for name, epochs_saved in (("new", pairs["saved"]), ("former", pd.Series(former))):
        for _, experiment in epochs_saved.groupby(pairs["kappa"] // 100):
            parts = {str(k): (claims.over_zero(c), 0.0, math.inf) for k, c in experiment.groupby(pairs["kappa"])}
            verdicts[name] += judge_claim(parts)[1] == "fails"
    assert verdicts["new"] <= experiments / 5 and verdicts["former"] > experiments / 2


def test_epochs_are_told_only_of_pairs() -> None:
    """Another seed, or a run without validation scores, is compared with nothing."""
    alone = pd.concat([scored("Feras", float, seeds=1), scored("GraphSAINT", float).query("seed == 1")])
    assert curves.epochs_saved(alone).empty
    unknown = pd.concat([scored("Feras", float).assign(validation=math.nan), scored("GraphSAINT", float)])
    assert curves.epochs_saved(unknown).empty


def test_late_scores_compare_with_q_1() -> None:
    """On the same seeds, with the interval; pace does not depend on the level a curve of one shape reaches."""
    shapes: dict[int, Callable[[int], float]] = {1: lambda t: 0.8 * (1 - 2.0**-t), 10: lambda t: 0.4 * (1 - 2.0**-t)}
    shapes[70] = lambda t: 0.008 * t
    points = pd.concat([scored("Feras", shape, q) for q, shape in shapes.items()])
    speed = curves.pace(points).groupby("q").pace.mean()
    assert speed[1] == pytest.approx(speed[10], abs=0.001) and speed[70] < 0.3 < 0.9 < speed[1]
    late = curves.late_scores(points).set_index("q")
    assert late.loc[10, "minus q=1"] == pytest.approx(-0.4) and late.loc[10, "runs"] == 2
    assert late.loc[10, "low"] <= -0.4 <= late.loc[10, "high"] and math.isnan(late.loc[1, "low"])
    assert list(late.index) == [1, 10, 70]


def test_late_scores_begin_at_epoch_50() -> None:
    """Epoch 50 counts, as in the claims FR-H1 and FR-H7; a run of 60 epochs counts from its half on."""
    late = curves.late_scores(scored("Feras", lambda t: float(t == 50), seeds=1))
    assert late["F1-micro"].tolist() == pytest.approx([1 / 11])  # 50, 55, ..., 100
    late = curves.late_scores(scored("Feras", lambda t: float(t == 30), seeds=1, epochs=60))
    assert late["F1-micro"].tolist() == pytest.approx([1 / 31])  # 30, 31, ..., 60


@pytest.mark.parametrize(("steps", "verdict"), [(5.0, "mixed"), (40.0, "fails")])
def test_claim_2_counts_epochs(steps: float, verdict: str) -> None:
    """Feras that learns in fewer or more steps than the others, with the theorem failing on signed features."""
    runs = {name: OURS[name].runs("paper") for name in ("FR-F3a", "FR-F3b")}
    runs = {name: [run for run in group if run.dataset == "Photo"] for name, group in runs.items()}

    def curve(run: Run, t: int) -> float:
        return 0.8 - 0.4 * math.exp(-t / (steps if run.method == "Feras" else 15.0)) + 0.001 * run.seed

    frames = {name: stored(group, curve) for name, group in runs.items()}
    frames["FR-Th4"] = checks(FR_Th4_signed="fails")
    text, judged = claims.looser(lambda name: frames[name])
    assert judged == verdict and "FR-Th4-signed fails" in text and "Photo, 60%, against GraphSAINT-SW" in text
    assert ("later in 0" in text) == (steps < 15)


def test_attacks_with_several_messages_are_a_line_of_their_own() -> None:
    """A run without the option has one message, and stays on the line of its depth and kappa."""
    shared = {"dataset": "Photo", "partition": "private-public(kappa=0.6)", "depth": 1, "hidden": 8, "converged": True}
    runs = pd.DataFrame([shared | {"equations_per_feature": 1.0, "observations": count} for count in (math.nan, 1, 4)])
    plain = "depth 1, kappa 60%"
    assert list(tables.attacks(runs)["line"]) == [plain, plain, plain + ", 4 messages"]
    assert set(tables.attacks(runs.drop(columns="observations"))["line"]) == {plain}
