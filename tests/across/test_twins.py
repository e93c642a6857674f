"""Nodes with the same neighbours (AX-14), compared with plain sets, a graph made by hand, and planted predictions."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from stored import row_of
from torch_geometric.data import Data

from fedrepro.across import exhibits, page, protocol, tables, twins
from fedrepro.data import datasets
from fedrepro.runs.run import Run

NOTHING = pd.DataFrame(columns=list(tables.MAIN_COLUMNS))


def test_groups_are_those_of_plain_sets() -> None:
    """Two nodes have one number exactly if their sets of neighbours are equal and large enough."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 20))
    ends = np.concatenate([ends, [[20, 21, 20, 21, 22, 22], [0, 0, 3, 3, 5, 22]]], axis=1)  # 20 and 21 are twins
    both = torch.from_numpy(np.concatenate([ends, ends[::-1], ends[:, :3]], axis=1))  # three edges stand twice
    group = twins.groups(Data(edge_index=both, num_nodes=23))
    sets = [{int(b) for a, b in both.T.tolist() if a == node and b != node} for node in range(23)]
    assert group[20] == group[21] >= 0 and group[22] == -1  # a loop is no neighbour
    for a, b in combinations(range(23), 2):
        assert (group[a] == group[b] >= 0) == (sets[a] == sets[b] and len(sets[a]) >= twins.LEAST), (a, b)


def by_hand(label: list[int]) -> Data:
    """Return a graph in which nodes 2 to 7 have the neighbours 0 and 1, node 8 has only 0, and 2 and 3 are trained."""
    ends = torch.tensor([(hub, node) for node in range(2, 8) for hub in (0, 1)] + [(0, 8)]).T
    masks = torch.zeros(3, 9, dtype=torch.bool)
    masks[0, [2, 3]], masks[1, [0, 1]], masks[2, [4, 5, 6, 7, 8]] = True, True, True
    named = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    return Data(x=torch.eye(9), y=torch.tensor(label), edge_index=torch.cat([ends, ends.flip(0)], 1), **named)


def test_counts_are_those_by_hand() -> None:
    """Labels of twins agree or not, and copies of the training twins' most frequent label are counted."""
    run = Run("check", "across", "twins", "copied pages", "", "public", "single", 1, 0, {})
    datasets.register("copied pages", lambda: by_hand([1, 1, 0, 0, 0, 0, 0, 1, 1]))
    counts = twins.count(run)
    assert counts["series"]["nodes"] == [4, 5, 6, 7]
    # Hubs 0 and 1 have the neighbours 2 to 7, but 0 also has 8. Those of the 15 pairs of 2 to 7 that hold 7 disagree.
    expected = {"twins": 6 / 9, "same_label": 10 / 15, "chance": (10 + 6) / 36, "covered": 4 / 5}
    assert counts["result"] == pytest.approx(expected | {"same_client": 1.0, "copied": 3 / 4})
    apart = run.replace(partition="one-node-per-client", clients=9)
    assert twins.count(apart)["result"]["same_client"] == 0.0
    datasets.register("copied pages", lambda: by_hand([1, 1, 0, 0, 1, 1, 1, 1, 1]))  # the training twins mislead
    assert twins.count(run)["result"]["copied"] == 0.0


def test_a_twin_among_test_nodes_covers_nothing() -> None:
    """The trained twin 2 covers its twin 3, and the twins 6 and 7, which are both tested, cover nothing."""
    ends = torch.tensor([(hub, node) for node, hubs in TWINS_AND_HUBS.items() for hub in hubs]).T
    masks = {f"{name}_mask": torch.isin(torch.arange(8), torch.tensor(nodes)) for name, nodes in SPLIT.items()}
    graph = Data(x=torch.eye(8), y=torch.arange(8) % 2, edge_index=torch.cat([ends, ends.flip(0)], 1), **masks)
    datasets.register("tested twins", lambda: graph)
    counts = twins.count(Run("check", "across", "twins", "tested twins", "", "public", "single", 1, 0, {}))
    assert counts["series"]["nodes"] == [3] and counts["result"]["covered"] == pytest.approx(1 / 3)


TWINS_AND_HUBS = {2: (0, 1), 3: (0, 1), 6: (4, 5), 7: (4, 5)}
SPLIT = {"train": [2], "val": [0, 1, 4, 5], "test": [3, 6, 7]}


def test_a_graph_without_twins_has_none() -> None:
    """On a path nothing is covered, and shares of nothing are NaN."""
    path = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    data = by_hand([0, 1] * 4 + [0])
    datasets.register("a path", lambda: data.clone().update({"edge_index": torch.cat([path, path.flip(0)], 1)}))
    counts = twins.count(Run("check", "across", "twins", "a path", "", "public", "single", 1, 0, {}))
    assert counts["series"]["nodes"] == [] and counts["result"]["covered"] == 0.0
    assert math.isnan(counts["result"]["copied"]) and math.isnan(counts["result"]["same_client"])


def planted(gain: dict[bool, float]) -> pd.DataFrame:
    """Return stored rows in which FedGCN is right more often than Local by a gain on nodes with a twin or without."""
    column = protocol.Column("Chameleon", protocol.METIS)
    covered = list(range(40))
    rows = []
    for seed in range(3):
        check = next(run for run in protocol.twin_counts() if run.dataset == "Chameleon" and run.seed == seed)
        rows.append(row_of(check, {"series.nodes": covered}))
        for name in ("Central", "Local", "FedGCN"):
            run = protocol.cell(name, column, [seed], keep="predictions")[0]
            lead = gain if name == "FedGCN" else {True: 0.0, False: 0.0}
            right = [node % 10 < 5 + seed + 10 * lead[node < 40] for node in range(100)]
            test = {"node": list(range(100)), "label": [1] * 100, "before": list(map(int, right))}
            rows.append(row_of(run, {"series.predictions": {"test": test | {"after": test["before"]}, "val": {}}}))
    return pd.DataFrame(rows)


@pytest.mark.parametrize("where", [True, False])
def test_a_lead_stands_on_the_nodes_that_have_it(where: bool) -> None:
    """A lead planted on nodes with a twin is not shown on the others, nor the other way round."""
    table = twins.scores(planted({where: 0.2, not where: 0.0}))
    assert set(table["column"]) == {"Chameleon metis 10"}  # the central run's, too
    assert table.groupby("nodes")["test nodes"].unique().to_dict() == {twins.WITH: [40], twins.WITHOUT: [60]}
    leads = twins.leads(table).set_index(["row", "nodes"])
    lead = {True: twins.WITH, False: twins.WITHOUT}
    assert leads.loc[("FedGCN", lead[where]), "difference"] == pytest.approx(20)
    assert leads.loc[("FedGCN", lead[not where]), "difference"] == pytest.approx(0)
    assert leads.loc[("Local", twins.WITH), "accuracy"] == pytest.approx(60)
    assert math.isnan(leads.loc[("Local", twins.WITH), "difference"])
    kind = {True: "larger on test nodes with a training twin", False: "larger on the others"}
    [told] = [one for one in page.sentences(NOTHING, leads=twins.leads(table)) if "Duplicated" in one]
    assert (
        f"{kind[where]}: FedGCN" in told
        and f"{kind[not where]}: none" in told
        and "not shown to depend on twins: none" in told
    )
    assert set(leads["larger"].dropna()) == {lead[where], ""}  # nothing is shown for Central
    assert lead[False] == "without a training twin"  # a reader of the table meets the value by itself
    panels = twins.draw(twins.leads(table)).axes
    assert [axes.get_title() for axes in panels] == ["Chameleon, METIS, 10 clients"]
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["Central", "Local", "FedGCN"]


def test_equal_leads_with_unequal_noise_do_not_depend_on_twins() -> None:
    """A lead that is shown on only one kind of nodes, because the other scatters more, is not said to be larger."""
    noise = [-1.0, -0.5, 0.0, 0.5, 1.0]
    rows = [
        ("Chameleon metis 10", name, seed, nodes, 50.0 + lead + size * (noise[seed] if lead else 0.0))
        for nodes, size in ((twins.WITH, 1.0), (twins.WITHOUT, 15.0))
        for name, lead in (("Local", 0.0), ("FedGCN", 5.0))
        for seed in range(5)
    ]
    leads = twins.leads(pd.DataFrame(rows, columns=["column", "row", "seed", "nodes", "accuracy"]))
    fedgcn = leads.set_index(["row", "nodes"]).loc["FedGCN"]
    assert fedgcn.loc[twins.WITH, "low"] > 0 > fedgcn.loc[twins.WITHOUT, "low"]
    gaps = [-14.0 * one for one in noise]
    low, high = stats.t.interval(0.95, 4, np.mean(gaps), stats.sem(gaps))
    assert fedgcn[["gap low", "gap high"]].to_numpy().tolist() == [pytest.approx([low, high])] * 2
    [told] = [one for one in page.sentences(NOTHING, leads=leads) if "Duplicated" in one]
    assert "not shown to depend on twins: FedGCN" in told and told.count("none") == 2


def test_both_kinds_of_nodes_together_give_the_runs_score() -> None:
    """On a stand-in, correct predictions on both kinds of nodes add up to the stored test accuracy."""
    from fedrepro.runs.execute import compute

    runs = [run for run in exhibits.GRIDS["AX-14"].runs("smoke") if run.method in ("twins", "FedAvg")]
    rows = []
    for record in compute(runs[:1]) + compute(runs[1:]):
        run = next(run for run in runs if run.key == record["key"])
        series = {f"series.{name}": value for name, value in record["series"].items()}
        best = record["result"].get("before", {}).get("best", {})
        rows.append(row_of(run, {**series, "test": best.get("test")}))
    table = twins.scores(pd.DataFrame(rows))
    right = (table["accuracy"].fillna(0) * table["test nodes"]).sum() / table["test nodes"].sum()
    assert right == pytest.approx(100 * rows[1]["test"])


def test_without_runs_the_tables_are_empty() -> None:
    """Before the first run there are no rows, and no figure."""
    empty = pd.DataFrame(columns=["task"])
    assert twins.counts(empty).empty and twins.leads(twins.scores(empty)).empty
    assert twins.draw(twins.leads(twins.scores(empty))) is None
