"""The protocol across the papers: equal budgets, choices without test scores, an attacker between its controls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from stored import row_of

import fedrepro as fr
from fedrepro import registry
from fedrepro.across import exhibits, messages, pictures, protocol, tables, yours
from fedrepro.engine.fedavg import FedAvg
from fedrepro.engine.method import State, Update
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.runs import tasks
from fedrepro.runs.store import Store


def test_every_method_has_the_same_budget_and_is_tuned_on_a_seed_that_no_table_shows() -> None:
    """Six points a method; the tuning seed is in no column."""
    assert {len(protocol.points(method)) for method in [*protocol.METHODS, "a user's"]} == {6}
    assert protocol.TUNING_SEED not in {run.seed for run in protocol.table()}
    for graph in protocol.SEEDS:
        runs = protocol.tuning(graph)
        by_method = pd.Series([str(run.options.get("structure", "")) + run.method for run in runs]).value_counts()
        assert set(by_method) == {6} and {run.seed for run in runs} == {protocol.TUNING_SEED}


def test_the_picture_has_the_protocols_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that changes in the protocol changes in its picture."""
    monkeypatch.setattr(protocol, "CLIENTS", 17)
    monkeypatch.setattr(protocol, "MAIN", "21/39/40")
    told = " ".join(text.get_text() for text in pictures.comparison().axes[0].texts)
    assert "17 clients" in told and "21% training" in told and f"{protocol.CLIENT['rounds']} rounds" in told


def test_every_cell_is_run_or_says_why_not() -> None:
    """Each method has runs in each column, or a reason; Feras and GFL-APPNP have their own columns."""
    for column in protocol.columns():
        for method in protocol.METHODS:
            why = protocol.why_not(method, column)
            if why:
                with pytest.raises(ArgumentError, match="column"):
                    protocol.cell(method, column, [0])
            else:
                assert protocol.cell(method, column, [0])
    for method in protocol.OWN_GROUND:
        assert [c for c in protocol.columns() if not protocol.why_not(method, c)]


def test_methods_share_the_network_the_rounds_and_the_split() -> None:
    """Whatever a row replaces is listed in `METHODS`; all else is equal in a column."""
    for column in protocol.columns():
        runs = {m: protocol.cell(m, column, [0])[0] for m in protocol.METHODS if not protocol.why_not(m, column)}
        assert {run.split for run in runs.values()} == {column.split}
        assert {run.options["rounds"] for run in runs.values()} == {100}
        for method, run in runs.items():
            for name, value in protocol.CLIENT.items():
                free = {**protocol.METHODS[method].options, **protocol.METHODS[method].tried[0]}
                assert name in free or run.options[name] == value, (method, name)


def test_the_choice_of_a_point_takes_no_test_score() -> None:
    """Permuted test scores change no choice; validation scores do."""
    runs = protocol.tuning("Cora")[:12]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame([row_of(run, {}) for run in runs])
    for view in ("before", "after"):
        frame[f"{view}.best.val"] = frame[f"{view}.best.test"] = rng.random(len(runs))
    chosen = tables.choose(frame)
    other = frame.assign(**{f"{v}.best.test": rng.random(len(runs)) for v in ("before", "after")})
    assert len(chosen) == 2 and tables.choose(other).equals(chosen)
    moved = frame.assign(**{f"{v}.best.val": 1 - frame[f"{v}.best.val"] for v in ("before", "after")})
    assert not tables.choose(moved)["place"].equals(chosen["place"])


def test_a_metric_chooses_the_point() -> None:
    """By macro-F1 and AUC on validation nodes other points win than by accuracy; no test score takes part."""
    runs = protocol.tuning("Cora")[:12]
    rng = np.random.default_rng(3)
    frame = pd.DataFrame([{"key": run.key, **run.to_dict(), **run.options} for run in runs])
    entries = [f"{view}.best.{entry}" for view in ("before", "after") for entry in ("val", "val_f1", "val_auc")]
    frame = frame.assign(**{entry: rng.random(len(runs)) for entry in entries})
    for metric, (_, entry) in tables.METRICS.items():
        points = tables.choose(frame, metric)
        assert points["place"].tolist() == [int(frame[f"after.best.{entry}"][at : at + 6].argmax()) for at in (0, 6)]
        assert tables.choose(frame.assign(**{"after.best.test_auc": 1.0}), metric).equals(points)
    assert len({tuple(tables.choose(frame, metric)["place"]) for metric in tables.METRICS}) > 1
    with pytest.raises(ArgumentError, match=r"metric must be one of 'accuracy', 'macro_f1', 'auc'. Got 'AUC'"):
        tables.choose(frame, "AUC")
    with pytest.raises(ArgumentError, match="metric must be a score that the runs of Central on Cora hold"):
        tables.choose(frame.drop(columns="after.best.val_auc"), "auc")


def test_a_watched_method_computes_the_same() -> None:
    """The log changes no weight."""
    (run,) = exhibits.small(lambda: protocol.cell("FedAvg", protocol.Column("Cora", protocol.METIS), [0]))()
    method, fed, log, _ = messages.watch(run)
    (plain,) = tasks.train([run])
    assert len(log.updates) == 2 and type(method).__name__ == "FedAvg"
    assert fed.traffic.summary() == plain["result"]["traffic"]


@dataclass(frozen=True)
class ServerMomentum(FedAvg):
    """FedAvgM as a user would add it: the server adds a part of its last step (Hsu, Qi and Brown 2019)."""

    beta: float = 0.5

    def aggregate(self, state: State, update: Update) -> State:
        """Return the average plus beta times the last step."""
        averaged = super().aggregate(state, update)
        step = {name: averaged.shared[name] - w for name, w in state.shared.items()}
        held = state.more or {}
        last = held.get("step", {name: torch.zeros_like(w) for name, w in step.items()})
        step = {name: w + self.beta * last[name] for name, w in step.items()}
        shared = {name: w + step[name] for name, w in state.shared.items()}
        return State(shared, averaged.personal, {**held, "step": step})


def test_a_method_of_ones_own_gets_its_row_by_one_call(tmp_path: Path) -> None:
    """It is tuned as the others are, and the table has its accuracy, bytes and difference to Local with theirs."""
    registry.register("train", "ServerMomentum", ServerMomentum)
    store = Store(tmp_path)
    more = {"rounds": 2, "hidden": 8, "local_epochs": 1}
    table = fr.across(method="ServerMomentum", dataset="Cora~standin", seeds=2, store=store, **more)
    assert set(table["row"]) == {"Local", "FedAvg", "FedAvg (fine-tuned)", "ServerMomentum"}
    row = table.set_index("row").loc["ServerMomentum"]
    assert row["runs"] == 2 and 0 < row["accuracy"] <= 100 and row["low"] <= row["minus Local"] <= row["high"]
    assert row["MiB"] == table.set_index("row").loc["FedAvg", "MiB"] > 0
    assert sum(record["run"]["method"] == "ServerMomentum" for record in store) == 6 + 2
    by_auc = fr.across(dataset="Cora~standin", seeds=2, store=store, metric="auc", **more)
    assert by_auc["AUC"].is_monotonic_decreasing and 0 < by_auc["AUC"].max() <= 100
    gaps = by_auc.set_index("row")
    assert gaps.loc["FedAvg", "minus Local"] == pytest.approx(gaps.loc["FedAvg", "AUC"] - gaps.loc["Local", "AUC"])
    for wrong in ({"method": "ServerMomentun"}, {"metric": "f1"}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            fr.across(store=store, **wrong)


def test_one_table_says_why_a_method_was_not_attacked(tmp_path: Path) -> None:
    """Scores, bytes and leaks stand in one row; Central, a large graph and an attack that failed have a reason."""
    column, more = protocol.Column("csbm-DNC", protocol.METIS, 4), {"rounds": 2, "hidden": 8, "local_epochs": 1}
    store, names = Store(tmp_path), ["Central", "FedAvg", "Local"]
    frame = fr.execute([r for name in names for r in protocol.cell(name, column, [0], **more)], store=store, workers=1)
    runs = yours.attacks(names, column, 2708, **more)
    assert [run.options["of"] for run in runs] == ["FedAvg", "Local"]
    assert yours.attacks(names, column, yours.ATTACKED + 1) == []
    attacked = fr.execute(runs, store=store, workers=1)
    table = yours.summary(frame, attacked).set_index("method")
    assert list(table)[:6] == ["accuracy", "macro-F1", "AUC", "MiB", "leaks", "runs"]
    scored = tables.scored(frame).set_index("row")
    assert table.loc["FedAvg", "AUC"] == f"{scored.loc['FedAvg', 'AUC']:.1f}" and table.loc["FedAvg", "MiB"] > 0
    leak = tables.leaks(attacked).set_index("row").loc["FedAvg"]
    told = f"features {leak['features']:.2f}, edges {leak['edges']:.2f}, labels {leak['labels']:.2f}"
    assert table.loc["FedAvg", "leaks"] == told
    assert "all data are in one place" in table.loc["Central", "leaks"]
    nobody = attacked.iloc[:0]
    nobody.attrs["failed"] = [{"run": runs[0].to_dict(), "error": "ValueError: no"}]
    table = yours.summary(frame, nobody).set_index("method")
    assert table.loc["FedAvg", "leaks"] == "not attacked: ValueError: no"
    assert table.loc["Local", "leaks"] == "not attacked: the graph has over 5000 nodes"


@dataclass(frozen=True)
class Broken(FedAvg):
    """A method with a mistake."""

    def aggregate(self, state: State, update: Update) -> State:
        """Fail, as a wrong shape would."""
        raise RuntimeError("shapes do not fit")


def test_a_method_that_fails_says_so(tmp_path: Path) -> None:
    """Its row is not left out in silence."""
    registry.register("train", "Broken", Broken)
    more = {"rounds": 2, "hidden": 8, "local_epochs": 1}
    with pytest.raises(FedreproError, match=r"Broken.*shapes do not fit"):
        fr.across(method="Broken", dataset="Cora~standin", beside=(), seeds=1, store=Store(tmp_path), **more)
