"""Define errors that name the wrong argument, the allowed values and the given value.

FedreproError
├── ArgumentError    (also a ValueError)        a value is not allowed
├── DataError        (also an OSError)          a graph is not available, or is no graph
│   └── DamagedError                            a file of a graph has a wrong checksum or format
├── StoreError       (also an OSError)          a result cannot be written or read
└── DivergedError    (also an ArithmeticError)  training produced a loss that is not finite
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
LONGEST = 400  # characters of a value in a message
NEAR = 0.62  # share of the letters of two words that agree, from which one is suggested for the other

SYNONYMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("acc",),
    "average": ("aggregation", "weighting", "client_weights"),
    "clients": ("num_clients", "n_clients", "parties", "hosts", "participants", "workers", "k"),
    "dataset": ("data", "graph", "graph_name"),
    "dropout": ("drop", "dropout_rate", "p_drop", "drop_prob"),
    "heads": ("num_heads", "n_heads", "attention_heads", "nheads"),
    "hidden": ("hidden_dim", "hidden_channels", "hidden_size", "hidden_units", "nhid", "width", "units", "dim"),
    "layers": ("num_layers", "n_layers", "depth", "gnn_layers"),
    "local_epochs": ("epochs", "local_steps", "local_iterations", "inner_steps", "num_epochs", "e"),
    "lr": ("learning_rate", "eta", "step_size", "local_lr", "client_lr", "alpha_lr"),
    "method": ("algorithm", "algo", "strategy", "name"),
    "model": ("network", "net", "backbone", "architecture", "arch", "gnn"),
    "macro_f1": ("f1", "f1_macro"),
    "mu": ("proximal", "proximal_mu", "prox"),
    "optimizer": ("optim", "solver", "opt"),
    "participation": ("fraction", "client_fraction", "sample_rate", "fraction_fit", "frac", "c"),
    "partition": ("partitioner", "division", "splitter", "clustering"),
    "prepare": ("preprocess", "preprocessing", "transform", "normalize", "normalization"),
    "rounds": ("num_rounds", "n_rounds", "communication_rounds", "comm_rounds", "global_rounds", "global_epochs", "t"),
    "seed": ("random_state", "random_seed", "rng", "seeds"),
    "split": ("train_split", "masks", "train_ratio", "ratio"),
    "weight_decay": ("wd", "l2", "decay", "regularization", "l2_reg", "lambda"),
}
"""Other words of the field for fields and options of a run, for messages."""


class FedreproError(Exception):
    """The base of every error that this package raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of the traceback: the line of the cell, and the sentence.

        `%debug` still goes to where it was raised.
        """
        frames = traceback.extract_tb(self.__traceback__)
        cells = [frame for frame in frames if re.search(r"ipykernel_\d+|<ipython-input", frame.filename)]
        where = [f"in line {frame.lineno} of the cell: {frame.line}" for frame in cells[-1:]]
        return [*where, f"{type(self).__name__}: {self}"]


class ArgumentError(FedreproError, ValueError):
    """A value that is not allowed."""


class DataError(FedreproError, OSError):
    """A graph that is not available, or one that is no graph."""


class DamagedError(DataError):
    """A file of a graph with a wrong checksum or format, which no later call will find in order."""


class StoreError(FedreproError, OSError):
    """A result that cannot be written or read."""


class DivergedError(FedreproError, ArithmeticError):
    """A training whose loss is not finite."""


def did_you_mean(given: object, allowed: Iterable[object]) -> str:
    """Return `" Did you mean 'metis'?"` if there is a synonym or a near match, else an empty string.

    Names of the same paper come first, such as those that begin with FG- for FG-T9.
    """
    names = {str(name).lower(): str(name) for name in allowed}
    word = re.sub(r"[\s-]+", "_", str(given)[:LONGEST].lower())
    for name, others in SYNONYMS.items():
        if word in others and name in names:
            return f" Did you mean {names[name]!r}?"
    word = str(given)[:LONGEST].lower()
    before = re.match(r"\w+[-/]", word)
    alike = [name for name in names if before and name.startswith(before[0])]
    near = [match for among in (alike, names) for match in difflib.get_close_matches(word, among, n=1, cutoff=NEAR)]
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def one_of(argument: str, given: T, allowed: Iterable[T]) -> T:
    """Return `given` if it is among `allowed`.

    Raises:
        ArgumentError: it is not. The message lists the allowed values and the nearest match, which comes first where
            there are many.
    """
    choices = list(allowed)
    # An array equals nothing, but compares entry by entry.
    if isinstance(given, Hashable) and given in choices:
        return given
    listed = ", ".join(repr(choice) for choice in choices)
    near = did_you_mean(given, choices)
    if len(listed) > 2 * LONGEST:
        some = listed[: LONGEST // 2].rpartition(", ")[0]
        told = (
            f"{argument} must be one of {len(choices)} names. Got {_shown(given)}.{near} They are {some}, and others."
        )
        raise ArgumentError(told)
    raise ArgumentError(f"{argument} must be one of {listed}. Got {_shown(given)}.{near}")


def require(condition: bool, argument: str, allowed: str, given: object) -> None:
    """Raise an error unless a condition holds.

    Raises:
        ArgumentError: with the sentence "<argument> must be <allowed>. Got <given>."
    """
    if not condition:
        raise ArgumentError(f"{argument} must be {allowed}. Got {_shown(given)}.")


def is_whole(given: object, least: int = 1) -> bool:
    """Return whether a value is an integer, no boolean, and at least so large."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _shown(given: object) -> str:
    """Return a value as it is typed, on one line of at most `LONGEST` characters."""
    text = repr(given)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
