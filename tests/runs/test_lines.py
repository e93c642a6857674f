"""A changed bit is told, wherever it is; lines of older stores get their checksum."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fedrepro import cli
from fedrepro.runs import lines
from fedrepro.runs.execute import compute, execute
from fedrepro.runs.lines import Fault, LineError
from fedrepro.runs.run import Run, sweep
from fedrepro.runs.store import Store

pytestmark = pytest.mark.usefixtures("fakes")


def filled(folder: Path, seeds: int = 4) -> Store:
    """A store of finished and failed runs in two files."""
    store = Store(folder)
    for file, method in (("a", "quick"), ("b", "fails")):
        runs = sweep(task="check", paper="p", method=method, seed=range(seeds))
        execute(runs, store=store, file=file, workers=1, progress=False, quiet=True)
    return store


def unsealed(line: bytes) -> bytes:
    """A line as stores without checksums have it."""
    return line[: line.rindex(b',"sum"')] + b"}"


def strip(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        path.write_bytes(b"".join(unsealed(line) + b"\n" for line in path.read_bytes().splitlines()))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("file", ["a.jsonl", "environments.jsonl"])
def test_each_bit_of_a_line_is_guarded(tmp_path: Path, file: str) -> None:
    """A line with any one bit changed is no record, be it in the numbers, the names, the checksum or around it."""
    filled(tmp_path, 1)
    (line,) = (tmp_path / file).read_bytes().splitlines()
    lines.read(line, file)
    for bit in range(8 * len(line)):
        with pytest.raises(LineError):
            lines.read(flipped(line, bit), file)


def test_without_a_checksum_bits_change_unseen(tmp_path: Path) -> None:
    """The control: with only the key to guard it, a line takes many changed bits of its result for true."""
    filled(tmp_path, 1)
    line = unsealed((tmp_path / "a.jsonl").read_bytes().splitlines()[0])
    record, _ = lines.read(line, "a.jsonl")
    served = 0
    for bit in range(8 * line.index(b'"result"'), 8 * len(line)):
        try:
            served += lines.read(flipped(line, bit), "a.jsonl")[0] != record
        except LineError:
            continue
    assert served > 20


def test_a_changed_bit_of_a_store_is_named(tmp_path: Path) -> None:
    """Wherever a bit of a store changes, the file and line are named, that record is left out and the rest served."""
    whole = filled(tmp_path)
    right = {record["key"]: record for record in (*whole, *(found for found in whole.find("")))}
    draw = random.Random(0)
    paths = sorted(tmp_path.glob("*.jsonl"))
    for _ in range(150):
        path = draw.choice(paths)
        content = path.read_bytes()
        bit = draw.randrange(8 * len(content))
        line = content[: bit // 8].count(b"\n") + 1
        path.write_bytes(flipped(content, bit))
        store = Store(tmp_path)
        joins = content[bit // 8] == 10 and line < content.count(b"\n")  # a line feed lost makes one line of two
        named = {(fault.file, fault.line) for fault in store.faults}
        assert (path.name, line) in named and all(abs(at - line) <= 1 and name == path.name for name, at in named)
        served = {record["key"]: record for record in store.find("")}
        assert all(record == right[key] for key, record in served.items())
        lost = 0 if path.name == lines.ENVIRONMENTS else 1 + joins
        assert len(served) == len(right) - lost or (content[bit // 8] == 10 and not joins)
        assert cli_check(tmp_path) == 1
        path.write_bytes(content)
    assert cli_check(tmp_path) == 0


def cli_check(folder: Path, *options: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDREPRO_STORE", str(folder))
        return cli.main(["check", *options])


def test_an_edited_number_is_named_by_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number changed by hand is not shown; `show` and `check` name its line, and it is computed again."""
    store = filled(tmp_path / "results", 2)
    path = tmp_path / "results" / "a.jsonl"
    first, second = (record["key"] for record in store)
    path.write_bytes(path.read_bytes().replace(b'"test":0.14285714285714285', b'"test":0.99', 1))
    assert cli.main(["show", first]) == 2
    assert "fedrepro: a.jsonl line 1 has a wrong checksum, and is left out\n" in capsys.readouterr().err
    assert cli.main(["show", second]) == 0
    assert cli.main(["check"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "a.jsonl line 1 has a wrong checksum",
        f"1 finished runs in {tmp_path}/results: 1 wrong",
    ]
    frame = execute(sweep(task="check", paper="p", method="quick", seed=range(2)), store=store, file="a", workers=1)
    assert list(frame["score.test"]) == [1 / 7, 2 / 7]


def test_lines_without_a_checksum_are_read_named_and_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An older store is read, named once a file, and sealed without another change; sealing again does nothing."""
    before = {record["key"]: record for record in filled(tmp_path).find("")}
    files = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    strip(tmp_path)
    store = Store(tmp_path)
    assert {record["key"]: record for record in store.find("")} == before and store.faults == []
    assert list(map(str, store.unsealed)) == [
        "a.jsonl line 1 and 3 others have no checksum",
        "b.jsonl line 1 and 3 others have no checksum",
        "environments.jsonl line 1 has no checksum",
    ]
    assert cli_check(tmp_path) == 1 and cli_check(tmp_path, "--seal") == 0
    assert "9 lines were given a checksum" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == files
    store.refresh()
    assert store.unsealed == [] and len(store) == 4
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    assert store.seal() == 0 and {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_sealing_keeps_what_is_damaged(tmp_path: Path) -> None:
    """Only a whole line with the key of its run is sealed; others stay byte for byte, and are named."""
    store = filled(tmp_path)
    path = tmp_path / "a.jsonl"
    good, *rest = path.read_bytes().splitlines()
    other_run = unsealed(rest[0]).replace(b'"seed":1', b'"seed":9', 1)
    renamed = unsealed(rest[1]).replace(b'"chunk"', b'"chump"')
    path.write_bytes(b"\n".join([unsealed(good), other_run, renamed, rest[2][:-9]]))
    store.refresh()
    assert store.seal() == 1
    assert path.read_bytes() == b"\n".join([good, other_run, renamed, rest[2][:-9], b""])
    assert [fault for fault in store.check() if fault.file == "a.jsonl"] == [
        Fault("a.jsonl", 2, "has a key that is not its run's"),
        Fault("a.jsonl", 3, "has a field that no record has"),
        Fault("a.jsonl", 4, "is torn, or no JSON"),
    ]


def test_a_merge_of_branches_leaves_no_line_twice(tmp_path: Path) -> None:
    """After a union merge by Git a file has its lines in both forms, and new ones without checksum: each stays once."""
    store = filled(tmp_path, 3)
    path = tmp_path / "a.jsonl"
    whole = path.read_bytes()
    text = whole.splitlines()
    path.write_bytes(b"\n".join([*text[:2], *map(unsealed, text), b""]))
    store.refresh()
    assert store.seal() == 3 and path.read_bytes() == whole and len(store) == 3


def test_check_compares_keys_and_environments(tmp_path: Path) -> None:
    """A record under another run's key, and one whose environment is described nowhere, are wrong, sealed or not."""
    filled(tmp_path)
    store = Store(tmp_path)
    assert store.check() == []
    (record,) = compute([Run("check", "p", "quick", seed=7)])
    store.append("c", record | {"key": "0" * 64}, record | {"environment": "unknown"})
    assert store.check() == [
        Fault("c.jsonl", 1, "has a key that is not its run's"),
        Fault("c.jsonl", 2, "has an environment that environments.jsonl does not describe"),
    ]


def test_the_committed_store_is_whole() -> None:
    """Every line of the committed results has a right checksum, the key of its run, and a known environment."""
    store = Store(Path(__file__).parents[2] / "data" / "results")
    assert len(store) > 0 and store.check() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends(tmp_path: Path, end: bytes) -> None:
    """A file whose line ends were changed on the way is read."""
    whole = filled(tmp_path)
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", end))
    store = Store(tmp_path)
    assert store.faults == [] and len(store) == len(whole) == 4


def test_a_line_is_json(tmp_path: Path) -> None:
    """A line can be read by any program: the checksum is one more field of it."""
    filled(tmp_path, 1)
    given: dict[str, Any] = json.loads((tmp_path / "a.jsonl").read_bytes())
    assert list(given)[-1] == "sum" and len(given.pop("sum")) == 8 and given == next(iter(Store(tmp_path)))
