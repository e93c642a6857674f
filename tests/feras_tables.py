"""Frames of Feras's runs with made-up scores, as the store gives them."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from fedrepro.papers.feras.exhibits import grids, tables
from fedrepro.papers.feras.exhibits.tables import SCORE, VAL
from fedrepro.runs.run import Run

GAINS = {"GraphSAINT": 0.0, "GraphSAINT-SW": -0.005, "Feras": 0.03}


def row(run: Run, score: float, val: float | None = None) -> dict[str, object]:
    """A run as `Store.frame` returns it."""
    fields = {name: getattr(run, name) for name in ("dataset", "method", "partition", "clients", "seed")}
    scores = {SCORE: score, VAL: score if val is None else val, "facts.test_seen": score}
    return {"key": run.key, **fields, **dict(run.options), **scores, "status": "ok"}


def prepared(frame: pd.DataFrame) -> pd.DataFrame:
    return tables.prepare(frame, "FR-T2")


def noise(run: Run) -> float:
    return 0.002 * ((7 * run.seed + len(run.dataset)) % 5)


def table2(
    gains: dict[str, float],
    graphs: tuple[str, ...] = ("Photo", "PubMed"),
    asked: Callable[[], list[Run]] = grids.table2,
) -> pd.DataFrame:
    """Return FR-T2 on some graphs: scores of 0.7, noise common to a seed, gain times kappa and the sampler's offset."""
    runs = [run for run in asked() if run.dataset in graphs]
    share = {run.key: float(run.partition.split("=")[1].rstrip(")")) for run in runs}
    wobble = {"node": -0.05, "edge": -0.02, "rw": 0.0, "mrw": -0.01}
    scores = {r.key: 0.7 + noise(r) + gains[r.method] * share[r.key] + wobble[str(r.options["sampler"])] for r in runs}
    return pd.DataFrame([row(run, scores[run.key]) for run in runs])


def get_from(frame: pd.DataFrame, **more: pd.DataFrame) -> Callable[..., pd.DataFrame]:
    """The store of one exhibit, and of others by their IDs with `_` for `-`."""
    frames = {"FR-T2": frame, **{name.replace("_", "-"): each for name, each in more.items()}}
    return lambda name: prepared(frames.get(name, frame.iloc[:0]))


def stored(runs: list[Run], curve: Callable[[Run, int], float]) -> pd.DataFrame:
    """Return the prepared frame of runs whose series follow a curve over epochs."""
    frame = pd.DataFrame([row(run, 0.5) for run in runs])
    steps = [(run, int(run.options["local_epochs"]), int(run.options["rounds"])) for run in runs]
    series = [[curve(run, local * number) for number in range(1, rounds + 1)] for run, local, rounds in steps]
    return prepared(frame.assign(**{f"series.before.{name}_clients": series for name in ("test", "val")}))


def checks(**verdicts: str) -> pd.DataFrame:
    """A check's frame with rows of these ids (`_` for `-`) and verdicts."""
    rows = [{"id": id.replace("_", "-"), "statement": "", "verdict": verdict} for id, verdict in verdicts.items()]
    return pd.DataFrame({"checks": [[each | {"measured": 0.0, "bound": 1.0} for each in rows]]})
