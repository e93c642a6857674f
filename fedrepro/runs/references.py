"""Choose the reference runs, by which a change of the engine is checked in minutes.

Such a change makes almost all stored results stale, and recomputing one whole run of each method, data set and model
takes hours. A reference run is the beginning of one: its first `ROUNDS` rounds, with one seed by itself. It is computed
with the code before the change, and recomputed after it on the same machine, where it must be the same to the last bit:

    fedrepro verify --references             # before the change
    fedrepro verify --cheapest --budget 60   # after it
"""

from __future__ import annotations

import math
from collections import defaultdict

from fedrepro.runs import provenance, verification
from fedrepro.runs.execute import execute
from fedrepro.runs.lines import REFERENCE, Record, hash_of
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

FILE = "references"
ROUNDS = 12  # FGGP's server renews its second view after ten, the rarest event of any method
CHEAP = 4.0  # seconds; a whole run that takes no longer needs no reference run
SAVING = 1.5  # a whole run that costs less than this times its beginning needs none, either


def missing(store: Store) -> list[Run]:
    """Return the reference runs that the store lacks, those that cost least first.

    There is one for each method, data set and model of which a training run on a CPU holds, made from the one that took
    the fewest seconds, unless the cheapest whole run costs little. One of older code or of another machine is computed
    again.
    """
    old = {record["key"] for record in verification.stale(store)}
    held: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    known = set()
    for record in store:
        run = record["run"]
        trained = run["task"] == "train" and not store.on_gpu(record)  # a GPU's seconds say nothing of a CPU's
        if record["key"] in old or not trained or not verification.can_repeat(record):
            continue
        if run["paper"] != REFERENCE:
            held[verification.family(record)].append(record)
        elif record["environment"] == hash_of(provenance.environment("cpu", run["partition"]) | {"threads": 1}):
            known.add(verification.family(record))
    wanted = []
    for family in held.keys() - known:
        records = held[family]
        fastest = min(records, key=lambda record: (record["seconds"], record["key"]))
        whole = Run.from_dict(fastest["run"])
        rounds = whole.options.get("rounds", math.inf)
        seconds = fastest["seconds"] * min(1.0, ROUNDS / rounds)
        options = {**whole.options, "rounds": int(min(rounds, ROUNDS))}
        short = whole.replace(paper=REFERENCE, options=options)
        if min(map(verification.cost, records)) > max(CHEAP, SAVING * seconds):
            wanted.append((seconds, short.key, short))
    return [run for _, _, run in sorted(wanted)]


def compute(store: Store, budget: float | None = None) -> tuple[int, int]:
    """Compute the reference runs that the store lacks into its file `references.jsonl`.

    Args:
        store: where they are kept.
        budget: minutes after which none is started; None computes all.

    Returns:
        How many were computed, and how many are still missing.

    Raises:
        ArgumentError: `budget` is out of range.
        StoreError: the store cannot be written.
    """
    wanted = missing(store)
    execute(wanted, store=store, file=FILE, budget=budget, again=[run.key for run in wanted])
    left = len(missing(store))
    return len(wanted) - left, left
