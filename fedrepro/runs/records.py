"""Make the record of a run from what its computation returned, or from the error it ended in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fedrepro import registry
from fedrepro.errors import ArgumentError, require
from fedrepro.runs import provenance
from fedrepro.runs.lines import Record
from fedrepro.runs.run import Run


def describe(error: BaseException) -> str:
    """Return type and message of an error, as records keep it."""
    return f"{type(error).__name__}: {error}"


def record(run: Run, device: str, batch: Mapping[str, Any], output: Mapping[str, Any]) -> Record:
    """Return the record of a run; `output` holds `result` and perhaps `series` and `chunk`, or else `error`."""
    failed = next((status for status in ("unavailable", "lost") if output.get(status)), "failed")
    entry: Record = {
        "key": run.key,
        "run": run.to_dict(),
        "version": registry.find(run.task, run.method).version,
        "status": failed if "error" in output else "ok",
        "error": output.get("error"),
        "result": output.get("result", {}),
    }
    if "series" in output:
        entry["series"] = output["series"]
    return entry | {
        "fingerprint": provenance.fingerprint(*run.cell),
        "code": provenance.parts(*run.cell),
        "commit": provenance.loaded_commit(),
        "data": provenance.data(run.dataset, run.seed),
        "environment": provenance.environment(device, run.partition),
        "when": now(),
        "seconds": round(batch["seconds"] / len(batch["seeds"]), 4),
        "batch": dict(batch),
        "chunk": output.get("chunk"),
    }


def take_note(run: Run) -> None:
    """Import the code behind a run, and take note of its fingerprint, its parts and its commit for the record.

    Raises:
        CodeChangedError: the code was edited after this process had imported the package.
    """
    provenance.require_unchanged(*run.cell)
    provenance.fingerprint(*run.cell)
    provenance.parts(*run.cell)
    provenance.loaded_commit()


def batch_of(runs: Sequence[Run], seconds: float) -> dict[str, Any]:
    """Return what runs that were computed together, and differ only in their seed, have in common."""
    return {"seeds": [run.seed for run in runs], "seconds": round(seconds, 4)}


def now() -> str:
    """Return the time in UTC, ISO 8601, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def in_force(record: Record, before: tuple[str, str, int] | None) -> Record:
    """Return a record so that a store serves it instead of an earlier one, see `Store.age`.

    The clock of the machine that computed the earlier one may have been ahead.
    """
    if before is None or record["status"] != "ok" or record["when"] > before[0]:
        return record
    later = datetime.fromisoformat(before[0]) + timedelta(seconds=1)
    return record | {"merged": later.isoformat(timespec="seconds")}


def outputs(given: Sequence[Any], method: str) -> list[dict[str, Any]]:
    """Return what a method returned for its runs, as JSON values.

    Raises:
        ArgumentError: an entry holds no result, or what it holds is no JSON.
    """
    for output in given:
        filled = isinstance(output, Mapping) and {"result", "error"} & set(output)
        require(bool(filled), f"what {method!r} returns", "a mapping that holds 'result'", output)
    return [_plain(output, method) for output in given]


def _plain(value: Any, name: str) -> Any:
    """Return a value as JSON values; NaN becomes None.

    Raises:
        ArgumentError: a number is infinite, or a value is no JSON.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, f"{name}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        require(not math.isinf(value), name, "finite", value)
        return None if math.isnan(value) else float(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), name)
    raise ArgumentError(f"{name} must be made of JSON values. Got {type(value).__name__}.")


def constant(test: float | None, classes: float | None, share: float | None) -> str:
    """Return in words that a test accuracy is no better than that of a constant prediction, or nothing.

    Args:
        test: the accuracy.
        classes: the number of classes that are predicted at least once.
        share: the share of the most frequent class among the test nodes; NaN or None where it is not known.
    """
    if test is None or classes is None or share is None or not test <= share + 1e-9:
        return ""
    one = "one class is predicted for every node, and " if classes == 1 else ""
    equal = abs(test - share) < 1e-9
    below = "" if equal else f"below {share:.3f}, "
    return f"{one}the test accuracy {test:.3f} is {below}the share of the most frequent class"


def note(result: Mapping[str, Any]) -> str:
    """Return in words in which view a training run is no better than a constant prediction, or nothing."""
    told: dict[str, list[str]] = {}
    for view in ("before", "after"):
        scores = _part(result, view)
        at = _part(scores, "best") or _part(scores, "last")
        text = constant(at.get("test"), at.get("test_classes"), _part(result, "majority").get("test"))
        told.setdefault(text, []).append(view)
    return "; ".join(f"{' and '.join(views)} local training {text}" for text, views in told.items() if text)


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of a result; an empty one where a check or an attack has a number under this name."""
    part = values.get(name)
    return part if isinstance(part, Mapping) else {}


def largest_option(run: Run, error: BaseException) -> str:
    """Return the largest number among a run's options if the error is of a kind that such a number gives."""
    sizes = {name: value for name, value in run.options.items() if isinstance(value, int)}
    if not sizes or not (isinstance(error, MemoryError | OverflowError) or "allocate" in str(error)):
        return ""
    name = max(sizes, key=lambda each: sizes[each])
    return f" (the largest option is {name} = {sizes[name]})"
