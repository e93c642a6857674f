"""Compare all methods of the suite under one protocol: accuracy, cost and leaks.

`fedrepro.across(method="MyMethod")` runs the protocol for a registered method, and `fedrepro.across(dataset="mine")` on
a graph. Both return a table of scores, a row a method. The arguments are those of `yours.across`, which says more:

    method       a registered method
    dataset      a graph of the protocol, or one of yours
    partitions   how the graph is divided among clients
    clients      their number
    split        `public`, or percentages such as `20/40/40`
    beside       methods that the table must have too
    seeds        number of runs a cell, or their seeds
    store        where runs are kept
    metric       `accuracy`, `macro_f1` or `auc`
    and options  such as `rounds=2`, instead of the protocol's

The files of this folder:

    protocol.py    the protocol: graphs, clients, settings, tuning budget, and who cannot be run where
    exhibits.py    the runs behind the exhibits AX-1 to AX-14
    tables.py      what a reader sees of the runs: accuracy, macro-F1, clients, bytes, seconds
    statistics.py  paired differences, ranks with their critical difference, and what they depend on
    messages.py    what a method sends in its first round, captured while it trains, and the seconds of each side
    attacker.py    one attacker for all methods, with noise and plain data as controls
    twins.py       nodes with the same neighbours, and scores with and without them
    page.py        "Which method should I take?", written by rule from the tables
    pictures.py    a picture of the protocol
    yours.py       the protocol run for a method or a graph of the user
"""

import inspect
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that can be called, since `fr.across` is the name of this room and of its one entry."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the protocol for a method or a graph, see `fedrepro.across.yours.across`."""
        from fedrepro.across.yours import across

        return across(*arguments, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        """Return the arguments of the call; they are looked up here, since `yours` takes long to import."""
        from fedrepro.across.yours import across

        return inspect.signature(across)


sys.modules[__name__].__class__ = _Room
