"""FedStruct's frames of messages, graphs, partitions, generators, attacks and readings, on rows made by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from fedrepro.papers.fedstruct.exhibits import counts, tables
from fedrepro.reporting import exhibits

SIZES = {"classes": 7, "nodes": 2708, "features": 1433, "self_loops": 0}


def test_messages_are_one_row_each() -> None:
    """A message that a run does not send has no row; phase, direction and name are split."""
    sent = pd.DataFrame(
        {
            "dataset": ["Cora", "CiteSeer"],
            "before.up.power blocks": [5.0, None],
            "training.down.weights": [7.0, 9.0],
            "before": [5.0, 0.0],
        }
    )
    rows = counts.messages(sent, ["dataset"])
    assert rows.values.tolist() == [
        ["Cora", "before", "up", "power blocks", 5.0],
        ["Cora", "training", "down", "weights", 7.0],
        ["CiteSeer", "training", "down", "weights", 9.0],
    ]


def test_theta_does_not_count_as_growth() -> None:
    """The 120 scalars of theta (2 rounds, 3 clients, 10 weights) do not count among the blocks."""
    fixed = {"rounds": 2, "sizes.K": 3, "sizes.theta": 10, "sizes.n": 50}
    frame = pd.DataFrame([{**fixed, "before.up.blocks": 8.0, "training.up.gradients": 60.0, "training.down.w": 60.0}])
    total = counts.totals(frame).iloc[0]
    assert (total["before"], total["training"], total["beside"], total["nodes"]) == (8, 120, 8, 50)
    assert counts.totals(frame.iloc[:0]).empty


def cora(**changes: float) -> pd.DataFrame:
    row = {"dataset": "Cora", **SIZES, "undirected_edges": 5278, "directed_edges": 10556, "homophily": 0.8099}
    return counts.graphs(pd.DataFrame([{**row, **changes, "prepare": prepare} for prepare in ("", "undirected")]))


def test_a_size_agrees_with_one_way_to_count() -> None:
    """Homophily is compared with two digits, other numbers exactly; what does not agree names the nearest count."""
    printed = exhibits.published("fedstruct").query("exhibit == 'FS-T4' and dataset == 'Cora'")
    edges = float(printed.set_index("metric").loc["edges", "value"])
    table = counts.sizes(cora()).set_index(["dataset", "metric"])
    assert table.loc[("Cora", "nodes"), "state"] == table.loc[("Cora", "edge homophily ratio"), "state"] == "agrees"
    assert table.loc[("PubMed", "nodes"), "state"] == "not run"
    for undirected, state in ((edges, "agrees"), (edges + 1, "differs")):
        found = counts.sizes(cora(undirected_edges=undirected, directed_edges=9 * edges))
        row = found.set_index(["dataset", "metric"]).loc[("Cora", "edges")]
        assert (row["state"], row["which"], row["ours"]) == (state, "undirected_edges, as in the file", undirected)


def test_settings_need_the_graph_for_the_ends_of_a_network() -> None:
    """Cora's first and last width follow from its counts; a graph that is not here leaves them open."""
    table = counts.compare_settings(cora())
    layers = table[table["setting"].eq("layers of theta_f")].set_index("dataset")["state"]
    assert layers["Cora"] == "agrees" and layers["PubMed"] == "graph not here"
    other = counts.compare_settings(cora(features=1432))
    assert other[other["dataset"].eq("Cora") & other["setting"].eq("layers of theta_f")]["state"].item() == "differs"


def test_partitions_are_measured_by_their_cut() -> None:
    """Two parts of 3 and 5 nodes, 6 edges inside and 2 between; two nodes have no neighbour at their client."""
    run = {"dataset": "Cora", "partition": "random", "seed": 0, "result.clients": 2, "nodes": (3, 5)}
    frame = pd.DataFrame([{**run, "isolated_nodes": (1, 1), "total_inner_edges": 6, "cross_client_edges": 2}])
    row = counts.partitions(frame).iloc[0]
    assert (row["smallest"], row["largest"], row["cut"], row["alone"], row["clients"]) == (3, 5, 0.25, 0.25, 2)


@pytest.mark.parametrize(("seconds", "fast"), [(0.1, True), (0.3, False)])
def test_node2vec_is_timed_by_all_its_epochs(seconds: float, fast: bool) -> None:
    """One epoch is measured and fifty are needed, so 0.3 seconds are too slow; the others count once."""
    measured = {"task_dependent": False, "global": True, "local": False, "settings": 4, "seconds": seconds}
    run = {f"{kind}.{name}": value for kind in counts.GENERATORS for name, value in measured.items()}
    table = counts.marks(counts.generators(pd.DataFrame([{"dataset": "Cora", **run}])))
    assert table.loc["fast"].to_dict() == {**dict.fromkeys(counts.GENERATORS.values(), True), "Node2Vec": fast}
    assert not table.loc["no parameter tuning"].any() and table.loc["global properties"].all()
    printed = exhibits.published("fedstruct").query("exhibit == 'FS-T3'")
    assert set(printed["metric"]) == set(table.index) and set(printed["method"]) == set(table.columns)


def test_counting_takes_the_measured_unknowns() -> None:
    """`unknowns` is an option and a result: the result is shown, as a mean over seeds."""
    run = {"head": "mlp", "queries": 1, "observers": 4, "unknowns": 12, "rank": 3}
    frame = pd.DataFrame([{**run, "result.unknowns": 36, "error": error} for error in (0.1, 0.3)])
    row = counts.counting(frame).iloc[0]
    assert (row["result.unknowns"], row["rank"]) == (36, 3) and row["error"] == pytest.approx(0.2)
    assert counts.edge_attacks(pd.DataFrame({"prune": [0, 30]}))["pruning"].tolist() == ["full", "p = 30"]


def test_collusion_is_told_for_all_others_and_for_one() -> None:
    """Means over seeds, one row for each graph and client 1."""
    sides = {"together": 240.0, "alone": 27.0}
    runs = [
        {"dataset": "Cora"}
        | {f"{side}.{name}": value + seed for side, value in sides.items() for name in counts.COLLUDED}
        for seed in (0, 2)
    ]
    table = counts.colluding(pd.DataFrame(runs))
    assert table["client_1"].tolist() == ["all but one", "one"] and table["hidden"].tolist() == [241, 28]
    weights = 257 * 256 + 257 * 7  # two layers, of 256 and of seven outputs, with biases
    assert table["sums"].tolist() == pytest.approx([7 / 256] * 2)
    assert table["derivatives"].tolist() == pytest.approx([7 * weights / 256] * 2)


def rows(scores: dict[str, list[float]], **more: object) -> pd.DataFrame:
    cells = [(name, seed, value) for name, values in scores.items() for seed, value in enumerate(values)]
    return pd.DataFrame(cells, columns=["method", "seed", "percent"]).assign(dataset="Cora", **more)


def test_changes_are_paired_with_the_tables() -> None:
    """A reading is compared with the main one on its own seeds."""
    frame = rows({tables.MAIN: [70.0, 80.0], "no structure": [69.0, 77.0]})
    assert tables.changes(frame).loc[("Cora", "no structure")].tolist() == [-2, -3, -1, 2]


def test_local_gaps_are_paired() -> None:
    """Central minus Local GNN, by partition; below two common seeds there is no gap."""
    central = rows({"Central GNN": [80.0, 82.0]}, partition="single")
    local = rows({"Local GNN": [70.0, 71.0]}, partition="random")
    few = rows({"Local GNN": [70.0]}, partition="kmeans")
    table = tables.local_gaps(pd.concat([central, local, few])).set_index("partition")
    assert table.loc["random", ["gap", "pairs"]].tolist() == [10.5, 2]
    assert pd.isna(table.loc["kmeans", "gap"]) and table.loc["louvain", "pairs"] == 0


def test_mending_shows_what_the_generator_adds() -> None:
    """Rows without a generator have no such number; a frame without any has empty columns."""
    frame = rows({"FedSage+": [70.0, 72.0], "Central GNN": [80.0, 82.0]}, partition="random")
    added = frame.assign(**{"facts.added": [0.2, 0.4, None, None], "facts.wanted": [1.0, 1.0, None, None]})
    table = tables.mending(added).set_index("method")
    assert table.loc["FedSage+", ["mean", "runs", "generated", "missing"]].tolist() == pytest.approx([71, 2, 0.3, 1])
    assert pd.isna(table.loc["Central GNN", "generated"]) and tables.mending(frame)["missing"].isna().all()


def test_the_structure_part_stands_a_second_time() -> None:
    """Hop2Vec's structure part is a line of its own; other rows have none."""
    frame = rows({"FedStruct (H2V)": [70.0], "Central GNN": [80.0]}).assign(**{"structure only": [60.0, None]})
    both = tables.with_structure_only(frame).set_index("method")["percent"]
    assert both.to_dict() == {"FedStruct (H2V)": 70, "Central GNN": 80, "FedStruct (H2V s)": 60}


def test_labels_name_the_settings_of_the_figure() -> None:
    """A split 5/10/85 has 5% labelled nodes."""
    frame = tables.with_labels(pd.DataFrame({"split": ["5/10/85"]}))
    assert frame["labelled (percent)"].tolist() == [5.0] and frame["setting"].tolist() == ["5% labelled"]
