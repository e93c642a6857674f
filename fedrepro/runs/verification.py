"""Tell which stored results still hold: staleness by the code's fingerprint, verification by recomputing."""

from __future__ import annotations

import hashlib
import math
import random
import statistics
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fedrepro import registry
from fedrepro.data.shapes import SHAPES, whole
from fedrepro.errors import ArgumentError, DamagedError, is_whole, one_of, require
from fedrepro.runs import executors, provenance, tolerances
from fedrepro.runs.derived import findings, of_store
from fedrepro.runs.execute import compute_all
from fedrepro.runs.lines import REFERENCE, Record, cell_of, is_finding
from fedrepro.runs.run import Run
from fedrepro.runs.store import Store

if TYPE_CHECKING:
    from pandas import DataFrame

VERIFIED = "verify.jsonl"
DEVICES = ("own", "auto", "cpu", "cuda")
SEVERAL = 3


def stale(store: Store, records: Iterable[Record] | None = None) -> list[Record]:
    """Return the finished records whose code has changed since and which no verification has cleared.

    A record is cleared if, with the code as it is now, runs of its task, method, data set and model (and trained
    method, where a function of another task trains one) that its own code had computed were recomputed, and all of them
    agreed. If they agree only as far as rounding moves the method, `SEVERAL` must, or all that there are. Codes that
    agreed with a third one agree. So what held before a change holds after it once one of its codes was compared, and
    what was stale stays stale. A difference that was found under other tolerances is to be judged again. Other options
    need not be the same, since the tests of a method cover the code that only they reach. A reference run
    (`fedrepro.runs.references`) is short, so that it counts only if it is the same to the last bit.
    """
    holds = _judge(store)
    return [record for record in (store if records is None else records) if not holds(record)]


def _judge(store: Store) -> Callable[[Record], bool]:
    """Return the function that tells whether a finished record still holds."""
    family_of, stored, computed = _families(store)

    def was(finding: Record) -> Sequence[str]:
        """Return the codes whose results a finding speaks of; an older finding does not say it."""
        when, code = computed.get(finding["result"]["verified"], ("", ""))
        codes: Sequence[str] = finding["result"].get("was", [code] if when <= finding["when"] else [])
        return codes

    kept: defaultdict[tuple[str, ...], defaultdict[str, list[Mapping[str, Any]]]]
    kept = defaultdict(lambda: defaultdict(list))
    for record in findings(store):
        result = record["result"]
        judged_again = {
            "close": record["run"]["paper"] == REFERENCE,
            "differs": result.get("tolerances") != tolerances.version(result["cell"][1]),
        }
        if not judged_again.get(result["verdict"], False):
            kept[tuple(result["cell"])][record["fingerprint"]].append({**result, "was": was(record)})

    def agreed(kin: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the pairs of codes of which one recomputed the other's results of a family, and agreed."""
        for code, recomputed in kept.get(kin[:3], {}).items():
            said: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
            for finding in recomputed:
                for older in finding["was"] if family_of.get(finding["verified"]) == kin else ():
                    said[older].append(finding)
            if all(finding["verdict"] in ("identical", "close") for finding in recomputed):
                yield from ((code, older) for older in said if _cleared(said[older], stored[kin]))

    @cache
    def valid(kin: tuple[str, ...], code: str) -> set[str]:
        """Return the codes whose results of a family hold if `code` is the code as it is now."""
        pairs, codes, size = list(agreed(kin)), {code}, 0
        while len(codes) > size:
            size = len(codes)
            codes |= {other for pair in pairs if codes & {*pair} for other in pair}
        return codes

    now = cache(provenance.current)

    def holds(record: Record) -> bool:
        code = now(*cell_of(record))
        return record["fingerprint"] in valid(family(record), code) if code else is_finding(record)

    return holds


@of_store
def _families(
    store: Store,
) -> tuple[dict[str, tuple[str, ...]], Counter[tuple[str, ...]], dict[str, tuple[str, str]]]:
    """Return the family of each result by its key, how many results each has, and time and code of each result."""
    results = [record for record in store if not is_finding(record)]
    of_key = {record["key"]: family(record) for record in results}
    computed = {record["key"]: (record["when"], record["fingerprint"]) for record in results}
    return of_key, Counter(of_key.values()), computed


def family(record: Record) -> tuple[str, ...]:
    """Return what a record must have in common with a recomputed one that clears it: its cell and its model."""
    return (*cell_of(record), str(record["run"].get("options", {}).get("model", "")))


def _cleared(findings: Collection[Mapping[str, Any]], stored: int) -> bool:
    """Return whether what was found of some of a family's `stored` runs, which all agree, clears all of them."""
    near = any(found["difference"] <= tolerances.POINT for found in findings)
    return near or len({found["verified"] for found in findings}) >= max(1, min(SEVERAL, stored))


def verify(
    store: Store,
    n: int | None = 5,
    *,
    seed: int = 0,
    cheapest: bool = False,
    budget: float | None = None,
    device: str = "own",
    progress: bool = True,
    workers: int | None = None,
    before: Callable[[int, float], None] = lambda runs, seconds: None,
) -> DataFrame:
    """Compute stored runs again, together with the runs they were computed with, and compare.

    Stale ones come first, of as many methods, data sets and models as possible, then a random sample. Benchmarks are
    left out. A finding is stored in `verify.jsonl` as soon as its run is computed, and a pass clears staleness.

    Seconds and all values under `timing` are not compared. If versions, machine, threads and chunk are the same,
    everything else must be the same to the last bit. Otherwise numbers other than losses may differ by 0.01 (of
    their size, if that is above 1), and by 0.003 in the mean over three or more runs of a method on a data set. Whole
    numbers of a training run are not compared there, since they are rounds and what is counted without training.

    Training may multiply rounding from round to round. `rounding.csv` has what the same code on the same machine
    changes if it takes other instructions, as root mean square over runs. Three times this may differ where it is more
    than the above, and in the mean of n runs this by the root of n.

    Args:
        store: where the runs are.
        n: how many; None verifies all.
        seed: the seed of the sample.
        cheapest: take the records that took the fewest seconds first, those of a GPU last, instead of random ones.
        budget: minutes after which nothing new is started. A run is not started if it, and the runs computed with it,
            took more time than is left; shorter ones are computed instead.
        progress, workers: as for `execute`.
        device: `own` computes a record where it was computed, on the CPU or on a GPU; `auto`, `cpu` or `cuda` all of
            them there. Without a GPU records of one are computed on the CPU, which a warning says.
        before: called with the number of runs that were chosen, and the seconds that they, and the runs computed with
            them, took when they were stored; not called if there are none.

    Returns:
        One row for each run that was computed: `key`, `task`, `method`, `dataset`, `seed`, `stale`, `verdict`
        (`identical`, `close`, `differs`, `failed`, for want of the graph `unavailable` or `damaged`, or `lost` by a
        GPU), the largest `difference`, the `field` where it is, `error`.

    Raises:
        ArgumentError: `n` or `budget` is out of range.
        StoreError: the findings cannot be written.
    """
    import pandas as pd

    require(n is None or is_whole(n), "n", "an integer >= 1, or None for all", n)
    minutes = isinstance(budget, int | float) and not isinstance(budget, bool) and budget > 0
    require(budget is None or minutes, "budget", "a number of minutes > 0", budget)
    store.refresh()
    chosen, old = _sample(store, n, seed, cheapest)
    wanted = {record["key"]: record for record in chosen}
    costs = {tuple(run.key for run in _beside(record)): cost(record) for record in chosen}
    if chosen:
        before(len(chosen), sum(costs.values()))
    findings: dict[str, Finding] = {}

    def keep(records: list[Record]) -> None:
        for record in records:
            if record["key"] in wanted:
                again = record | {"environment": store.environment(record["environment"])}
                findings[record["key"]] = Finding(wanted[record["key"]], again)
                _store_findings(store, [findings[record["key"]]])

    deadline = math.inf if budget is None else time.monotonic() + 60 * budget

    def in_time(runs: Sequence[Run]) -> tuple[Sequence[Run], Sequence[Run]]:
        return (runs if time.monotonic() + costs[tuple(run.key for run in runs)] < deadline else (), ())

    for place, group in _places(store, chosen, device).items():
        these = list({tuple(run.key for run in runs): runs for runs in map(_beside, group)}.values())
        compute_all(these, keep, workers=workers, device=place, progress=progress, claim=in_time, deadline=deadline)
    in_order = [findings[key] for key in wanted if key in findings]
    _store_findings(store, _judge_means(in_order))
    rows = [finding.row() | {"stale": finding.old["key"] in old} for finding in in_order]
    columns = ["key", "task", "method", "dataset", "seed", "stale", "verdict", "difference", "field", "error"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.attrs["left"] = len(wanted) - len(findings)
    return frame


def _store_findings(store: Store, findings: Iterable[Finding]) -> None:
    """Store findings. A run that could not be computed here, for want of its graph or of a GPU, has none."""
    if kept := [finding.record() for finding in findings if finding.verdict not in ("unavailable", "damaged", "lost")]:
        store.append(VERIFIED, *kept)


def _places(store: Store, chosen: Sequence[Record], device: str) -> dict[str, list[Record]]:
    """Return the records to compute again by device."""
    if one_of("device", device, DEVICES) != "own":
        return {device: list(chosen)}
    places: dict[str, list[Record]] = {"cpu": [], "cuda": []}
    for record in chosen:
        places["cuda" if store.on_gpu(record) else "cpu"].append(record)
    if places["cuda"] and executors.resolved("auto") == "cpu":
        told = f"{len(places['cuda'])} of these runs were computed on a GPU, and no GPU is found"
        warnings.warn(f"{told}: they are computed on the CPU, and compared as on another machine.", stacklevel=3)
        return {"cpu": list(chosen)}
    return places


def _sample(store: Store, n: int | None, seed: int, cheapest: bool) -> tuple[list[Record], set[str]]:
    """Return the records to verify, and the keys of the stale ones."""
    old = {record["key"] for record in stale(store)}
    records = sorted(filter(can_repeat, store), key=lambda record: str(record["key"]))
    random.Random(seed).shuffle(records)
    if cheapest:
        records.sort(key=lambda record: (store.on_gpu(record), cost(record)))  # seconds of a GPU are not a CPU's
    turn: Counter[tuple[str, ...]] = Counter()

    def place(record: Record) -> float:
        """Return the turn of a stale record: one of each method, data set and model comes before a second."""
        turn[family(record)] += record["key"] in old
        return turn[family(record)] if record["key"] in old else math.inf

    return sorted(records, key=place)[:n], old  # a stable sort, so that the cheapest cells stay first


def can_repeat(record: Record) -> bool:
    """Return whether a record's run can be computed again: no benchmark, and of a method and graph of the package."""
    try:
        run = Run.from_dict(record["run"])
    except ArgumentError:
        return False
    known = whole(run.dataset) in ("", *SHAPES) or registry.generator(run.dataset) is not None
    return (known or run.task == "check") and run.task != "bench" and run.key == str(record["key"])


def cost(record: Record) -> float:
    """Return the seconds of a record and of the runs that were computed with it."""
    return float(record["seconds"]) * len(record["batch"]["seeds"])


def _beside(record: Record) -> list[Run]:
    """Return the runs with which a record was computed."""
    run = Run.from_dict(record["run"])
    return [run.replace(seed=seed) for seed in record["batch"]["seeds"]]


class Finding:
    """A stored record and a new one of the same run, with `changes` by field and the verdict on them."""

    def __init__(self, old: Record, new: Record) -> None:
        self.old, self.new = old, new
        self.verdict: str = new["status"]
        if str(new["error"]).startswith(f"{DamagedError.__name__}: "):
            self.verdict = "damaged"
        self.changes: dict[str, float] = {}
        if self.verdict != "ok":
            return
        alike = all(old[name] == new[name] for name in ("environment", "chunk"))
        if alike and old["batch"]["seeds"] == new["batch"]["seeds"]:
            pairs = list(_pairs([old["result"], old.get("series")], [new["result"], new.get("series")]))
            other = {at for at, a, b in pairs if repr(a) != repr(b)}
            self.changes = _changes(pair for pair in pairs if pair[0] in other)
            self.verdict = "differs" if self.changes else "identical"
        else:
            self.changes = compare(old, new)
            method = old["run"]["method"]
            within = all(abs(change) <= tolerances.allowed(method, at) for at, change in self.changes.items())
            self.verdict = "close" if within else "differs"

    @property
    def difference(self) -> float:
        return max(map(abs, self.changes.values()), default=0.0)

    @property
    def field(self) -> str:
        return max(self.changes, key=lambda at: abs(self.changes[at])) if self.difference else ""

    def row(self) -> dict[str, Any]:
        run = {name: self.old["run"][name] for name in ("task", "method", "dataset", "seed")}
        found = {"verdict": self.verdict, "difference": self.difference, "field": self.field}
        return {"key": self.old["key"], **run, **found, "error": self.new["error"]}

    def record(self) -> Record:
        """Return the finding as a record of a check named `verify`."""
        named = f"verify {self.old['key']} {self.new['fingerprint']} {self.new['environment']}"
        run = self.old["run"] | {
            "task": "check",
            "method": "verify",
            "options": {"verified": self.old["key"]},
        }
        result = {
            "verified": self.old["key"],
            "was": [self.old["fingerprint"]],
            "cell": list(cell_of(self.old)[:3]),
            "verdict": self.verdict,
            "tolerances": tolerances.version(self.old["run"]["method"]),
            "difference": self.difference if math.isfinite(self.difference) else None,
            "field": self.field,
        }
        changed = {"run": run, "version": 1, "status": "ok", "result": result}
        kept = {name: value for name, value in self.new.items() if name != "series"}
        return kept | {"key": hashlib.sha256(named.encode()).hexdigest()} | changed


def compare(old: Record, new: Record) -> dict[str, float]:
    """Return by how much two records of a run differ, by field, as far as records of two machines are compared."""
    train = old["run"]["task"] == "train"  # the best round, a whole number, may be another one
    return _changes(
        (at, a, b)
        for at, a, b in _pairs(old["result"], new["result"])
        if "loss" not in at.rpartition(".")[2] and not (train and type(a) is type(b) is int)
    )


def _pairs(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the old and new value of every field of the old record but timings, nested names joined by dots.

    A field that only the new record has was added to all records later, and has nothing to be compared with.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in old:
            if name not in ("timing", "seconds"):
                yield from _pairs(old.get(name), new.get(name), f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for a, b in zip(old, new):
            yield from _pairs(a, b, at)
    else:
        yield at, old, new


def _changes(pairs: Iterable[tuple[str, Any, Any]]) -> dict[str, float]:
    """Return the change by field.

    The entries of a list share a name. Their change is the mean size with the sign of the sum, as the score of a single
    client is coarse.
    """
    entries: defaultdict[str, list[float]] = defaultdict(list)
    for at, old, new in pairs:
        entries[at].append(_change(old, new))
    return {at: math.copysign(statistics.fmean(map(abs, each)), sum(each)) for at, each in entries.items()}


def _change(old: Any, new: Any) -> float:
    """Return how much a number changed, relative to its size if that is above 1; infinite for other values."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new)):
        return float((new - old) / max(1.0, abs(old)))
    return 0.0 if old == new else math.inf


def _judge_means(recomputed: Sequence[Finding]) -> list[Finding]:
    """Change "close" to "differs" for all runs of a cell, three or more, whose mean moved by more than is allowed.

    Small differences in one direction are not noise. Returns the findings that were changed.
    """
    changed = []
    cells: defaultdict[tuple[str, ...], list[Finding]] = defaultdict(list)
    for finding in recomputed:
        if finding.verdict in ("identical", "close"):
            cells[cell_of(finding.old)].append(finding)
    for (_, name, *_), group in cells.items():
        fields = {at for finding in group for at in finding.changes}
        means = {at: statistics.fmean(finding.changes.get(at, 0.0) for finding in group) for at in fields}
        if len(group) >= SEVERAL and any(
            abs(mean) > tolerances.allowed(name, at, len(group)) for at, mean in means.items()
        ):
            changed += [finding for finding in group if finding.verdict == "close"]
    for finding in changed:
        finding.verdict = "differs"
    return changed
