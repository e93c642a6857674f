"""Say under an exhibit which of our runs it draws, when they were computed, and at which commits.

All is read from the store, so the sentences stay the same until a run is added, wherever they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedrepro.reporting import state
from fedrepro.runs.index import Index
from fedrepro.runs.lines import Record


def teller() -> Callable[[str], str]:
    """Read the store once, and return what says of an exhibit where its runs come from, if the store has any."""
    store, wanted = Index(), state.wanted("paper")
    return lambda exhibit_id: sentences(store.records(wanted.get(exhibit_id, {})))


def sentences(records: Iterable[Record]) -> str:
    """Return how many records there are, when they were computed, and at how many commits."""
    known = sorted(records, key=lambda record: record["when"])
    if not known:
        return ""
    days = list(dict.fromkeys(record["when"][:10] for record in (known[0], known[-1])))
    runs = "1 run" if len(known) == 1 else f"{len(known)} runs"
    told = f"Drawn from {runs} of the store, computed {'on' if len(days) == 1 else 'between'} {' and '.join(days)}"
    named = [record for record in known if record.get("commit")]
    if not named:
        return f"{told}; their records name no commit."
    commits = {record["commit"] for record in named}
    last, day = named[-1]["commit"], named[-1]["when"][:10]
    at = f"commit {last}" if len(commits) == 1 else f"{len(commits)} commits, the last {last}, {day}"
    rest = len(known) - len(named)
    return f"{told}, {f'{len(named)} of them ' if rest else ''}at {at}."
