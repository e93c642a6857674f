"""Options of runs that do not train: each is known and has its type, or is named before anything is computed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import fake_tasks
import pytest
from refused import refuses

import fedrepro as fr
from fedrepro import paths, registry
from fedrepro.errors import ArgumentError
from fedrepro.runs import codehash, options, provenance
from fedrepro.runs.execute import compute
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

OTHERS = [key for key in registry.REGISTRY if key[0] != "train"]
CORA = {"dataset": "Cora~standin", "split": "30/30/40", "partition": "metis", "clients": 2}


@pytest.mark.parametrize(
    ("task", "method", "given", "words"),
    [
        ("check", "feras-looser", {"trails": 5}, ("options of feras-looser", "'trails'", "Did you mean 'trials'?")),
        ("check", "gfl-weights", {"trials": 5}, ("options of gfl-weights must be none", "'trials'")),
        ("check", "feras-looser", {"trials": "many"}, ("option 'trials'", "of type int, like 500", "'many'")),
        ("check", "feras-looser", {"trials": 0.5}, ("option 'trials'", "of type int", "Got 0.5")),
        ("check", "feras-looser", {"trials": True}, ("option 'trials'", "of type int", "Got True")),
        ("check", "feras-rate", {"q": 3}, ("option 'q'", "of type tuple", "Got 3")),
        ("check", "fedstruct-structures", {"timed": 1}, ("option 'timed'", "of type bool", "Got 1")),
        ("check", "gfl-algorithm", {}, ("option 'local_epochs' of gfl-algorithm", "given, of type int", "None")),
        ("attack", "FedGAT", {"node": 5}, ("options of FedGAT", "'node'", "Did you mean 'nodes'?")),
        ("attack", "FedGAT", {"noise": "loud"}, ("option 'noise'", "of type float", "'loud'")),
        ("attack", "across-leak", {"of": "FedAvgg"}, ("method", "'FedAvgg'", "Did you mean 'FedAvg'?")),
        ("attack", "across-leak", {"of": "FedAvg", "mu": 1}, ("options of FedAvg", "'mu'", "'of', 'memory'")),
        (
            "traffic",
            "FedStruct",
            {"structure_dept": 3},
            ("options of FedStruct", "'structure_dept'", "'structure_depth'"),
        ),
        ("traffic", "FedGAT", {"degree": 3}, ("options of FedGAT must be none", "'degree'")),
        ("partition", "manifest", {"beta": 1}, ("options of manifest must be none", "'beta'")),
        ("bench", "rounds", {"hidden": 4, "repeat": 1}, ("options of rounds", "'repeat'", "Did you mean 'repeats'?")),
        ("bench", "rounds", {}, ("option 'hidden' of rounds", "given, of type int", "None")),
        ("bench", "training", {"of": 3}, ("option 'of'", "of type str", "Got 3")),
        ("bench", "training", {"of": "FedAvg", "lr": "fast"}, ("option 'lr'", "of type float", "'fast'")),
        ("check", "FedSheafHN-new-clients", {"ratio": 0.5, "of": "Lokal"}, ("method", "'Lokal'", "'Local'")),
    ],
)
def test_a_bad_option_is_named(task: str, method: str, given: dict[str, Any], words: tuple[str, ...]) -> None:
    """An option that is unknown, missing or of another type is named, and nothing is computed."""
    run = Run(task, "p", method, options=given, **CORA)  # type: ignore[arg-type]
    told = refuses(lambda: fr.execute([run], store=Store(), file="a/b", progress=False), words)
    assert isinstance(told, ArgumentError) and not Store().folder.exists()


def test_a_run_computed_by_itself_is_checked_too() -> None:
    """Without `execute`, a bad option makes a failed record that names it, as one of a training run does."""
    for run in (
        Run("check", "p", "feras-looser", options={"trails": 5}),
        Run("train", "p", "FedAvg", options={"trails": 5}, **CORA),  # type: ignore[arg-type]
    ):
        (record,) = compute([run])
        assert record["status"] == "failed" and "Got 'trails'" in record["error"]


def test_functions_of_ones_own_may_say_what_they_read() -> None:
    """Options of a function are checked if it was registered with them, and else none is refused."""
    registry.register("check", "told", fake_tasks.quick, options={"trials": 5, "kind": str})
    options.check(Run("check", "p", "told", options={"kind": "x"}))
    refuses(
        lambda: options.check(Run("check", "p", "told", options={"kind": "x", "trial": 1})), ("'trial'", "'trials'")
    )
    refuses(lambda: options.check(Run("check", "p", "told")), ("option 'kind' of told", "given, of type str"))
    registry.register("check", "free", fake_tasks.quick)
    options.check(Run("check", "p", "free", options={"anything": 1}))
    refuses(
        lambda: registry.register("check", "no", fake_tasks.quick, options=["a"]), ("options", "a mapping", "['a']")
    )  # type: ignore[arg-type]


def read(target: str) -> dict[str, Any]:
    """Return the options that the code behind a function reads, each with its default, or `int` where it has none."""
    start = codehash.definition(target)
    assert start is not None
    defaults: dict[str, Any] = {}
    for statement in codehash.reached([start], provenance.ASIDE):
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
                if ast.unparse(node.func.value).endswith("options") and isinstance(node.args[0], ast.Constant):
                    defaults[node.args[0].value] = _literal(node.args[1]) if len(node.args) > 1 else int
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("options"):
                if isinstance(node.slice, ast.Constant):
                    defaults.setdefault(node.slice.value, int)
            elif isinstance(node, ast.Dict) and "run.options" in [ast.unparse(value) for value in node.values]:
                defaults |= {ast.literal_eval(k): _literal(v) for k, v in zip(node.keys, node.values) if k is not None}
    return defaults


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


@pytest.mark.parametrize("key", OTHERS, ids=" ".join)
def test_the_registry_says_what_functions_read(key: tuple[str, str]) -> None:
    """Each option that a function reads is declared with the default that its code has, and no other is."""
    entry = registry.REGISTRY[key]
    defaults, declared = read(entry.target), entry.options
    assert declared is not None and (set(defaults) <= set(declared) or entry.trains)
    assert set(declared) - {"memory", "of"} <= set(defaults)
    for name, default in defaults.items():
        if (
            name in declared
            and default is not None
            and not isinstance(default, type)
            and not isinstance(declared[name], type)
        ):
            assert declared[name] == default, name


def test_what_is_stored_is_not_refused() -> None:
    """Every kind of run in the committed store has options that are allowed."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted((paths.root() / "data" / "results").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                run = {} if '"task":"train"' in line else json.loads(line.partition("\t")[0]).get("run", {})
                if (run.get("task"), run.get("method")) in registry.REGISTRY and run["task"] != "train":
                    given = run["options"]
                    kinds[run["task"], run["method"], given.get("of"), tuple(sorted(given))] = run
    assert len(kinds) > 60
    for run in kinds.values():
        options.check(Run.from_dict(run))


def test_checking_options_needs_no_torch() -> None:
    """Keys are computed, and options of what trains nothing are checked, without torch."""
    code = "import sys; from fedrepro.runs.run import Run; from fedrepro.runs import options; "
    code += "run = Run('check', 'p', 'feras-looser', options={'trials': 5}); run.key; options.check(run); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
