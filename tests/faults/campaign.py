"""Kill, share, damage and overfill stores at random, and check that nothing finished is lost or wrong: `make faults`.

    python -m faults.campaign --minutes 20               with tests/ and the checkout on PYTHONPATH
    python -m faults.campaign --seed 7 --only flip --number 12      one trial again
    python -m faults.campaign --without checksums        take a safeguard away: its trial must fail

Trials take turns, each for its share of the time. What a trial draws depends on the seed, its name and its number
alone; when a kill strikes depends on the machine as well. A trial that fails leaves its folder, and the status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import fake_tasks
import psutil
from faults import clusters, crashes, damage
from faults.judge import Skip, Trial

from fedrepro.runs import claims, store

TRIALS: dict[str, tuple[Trial, float]] = {  # and their shares of the time
    "kill": (crashes.kill, 2),
    "share": (crashes.share, 2),
    "write": (crashes.write, 1),
    "flip": (damage.flip, 2),
    "damage": (damage.spoil, 1),
    "odd": (damage.odd, 0.5),
    "full": (damage.full, 1),
    "pool": (clusters.pool, 2),
    "mount": (damage.mount, 0.5),
    "budget": (clusters.budget, 3),
    "dask": (clusters.dask, 2),
}
SHORT = ("kill", "share", "write", "flip", "damage", "odd", "full")  # trials that need no new interpreter
SAFEGUARDS: dict[str, tuple[str, object, str, object]] = {  # the trial, and what replaces the safeguard
    "checksums": ("flip", zlib, "crc32", lambda content: 0),
    "claims": ("share", claims.Claims, "_locked", lambda self, key: True),
    "the lock": ("write", store, "FileLock", lambda *path, **wait: nullcontext()),
    "cutting back": ("full", os, "ftruncate", lambda descriptor, size: None),
}
HANGING = 1200  # seconds after which a trial has failed


@dataclass
class Tally:
    """How many trials of a kind there were, how many held, how long they took, and what came of them."""

    tried: int = 0
    held: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: str = ""


def run(seconds: float, seed: int, names: list[str], number: int | None = None) -> dict[str, Tally]:
    """Run trials for a time, at least one of each; print what fails as it comes."""
    tallies = {name: Tally() for name in names}
    end = time.monotonic() + seconds
    while True:
        waiting = [name for name in names if not tallies[name].skipped]
        untried = [name for name in waiting if not tallies[name].tried]
        if not waiting or not (untried or (time.monotonic() < end and number is None)):
            return tallies
        name = min(untried or waiting, key=lambda name: tallies[name].seconds / TRIALS[name][1])
        attempt(name, seed, tallies[name], tallies[name].tried if number is None else number)


def attempt(name: str, seed: int, tally: Tally, number: int) -> None:
    """Run one trial in a folder of its own."""
    workspace = Path(tempfile.mkdtemp(prefix=f"faults-{name}-{number}-"))
    start = time.monotonic()
    signal.alarm(HANGING)
    try:
        tally.outcomes.update(TRIALS[name][0](workspace, random.Random(f"{seed} {name} {number}")))
        tally.held += 1
    except Skip as reason:
        tally.skipped = str(reason)
    except Exception:
        traceback.print_exc()
        print(f"FAILED: --seed {seed} --only {name} --number {number}; its folder: {workspace}", flush=True)
    finally:
        signal.alarm(0)
        for process in psutil.Process().children(recursive=True):  # of a trial that failed
            process.kill()
    tally.tried += not tally.skipped
    tally.seconds += time.monotonic() - start
    if tally.skipped or tally.held == tally.tried:
        shutil.rmtree(workspace)


def table(tallies: dict[str, Tally]) -> str:
    """Return what was tried and what came of it, a line a kind of trial."""
    lines = []
    for name, tally in tallies.items():
        told = ", ".join(f"{count} {what}" for what, count in tally.outcomes.items())
        what = (TRIALS[name][0].__doc__ or "").split("\n")[0].rstrip(".")
        counts = f"not tried: {tally.skipped}" if tally.skipped else f"{tally.held} of {tally.tried} held"
        lines.append(f"{name:7s} {counts}, {tally.seconds:.0f} s: {what}\n{'':7s} {told}".rstrip())
    return "\n".join(lines)


def hanging(*_: object) -> None:
    raise TimeoutError(f"the trial was not over after {HANGING} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="how long, at least one trial of each kind")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--only", choices=TRIALS, action="append", help="this kind of trial; may be given again")
    parser.add_argument("--number", type=int, default=None, help="only the trial with this number")
    parser.add_argument("--short", action="store_true", help="only trials that need no new interpreter")
    parser.add_argument("--without", choices=SAFEGUARDS, help="once, without this safeguard: the trial must fail")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGALRM, hanging)
    fake_tasks.register()
    if options.without:
        name, where, what, instead = SAFEGUARDS[options.without]
        setattr(where, what, instead)
        options.only, options.minutes = [name], 0
    names = options.only or [name for name in TRIALS if name in SHORT or not options.short]
    tallies = run(60 * options.minutes, seed, names, options.number)
    print(table(tallies))
    failed = sum(tally.tried - tally.held for tally in tallies.values())
    print(f"seed {seed}: {sum(tally.held for tally in tallies.values())} trials held, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
