"""Describe what a result rests on: the code that computed it, and where it ran.

Nothing here imports the code it reads, nor torch.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import fedrepro
from fedrepro import paths, registry
from fedrepro.data.shapes import SHAPES
from fedrepro.errors import ArgumentError, FedreproError
from fedrepro.runs import cache as kept
from fedrepro.runs import codehash

T = TypeVar("T")
CODE = ("fedrepro", "notebooks")  # the folders whose files can change a result
PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "pymetis")
# Others that divide graphs. They are named where they do, so that other results keep the environment they have.
DIVIDING = {"kmeans": "scikit-learn", "louvain": "networkx"}

# Modules that computing code reaches, and that have no part in its values. It reaches no module that stores or shows.
ASIDE = (
    "fedrepro.data.sources",
    "fedrepro.errors",
    "fedrepro.paths",
    "fedrepro.registry",
    "fedrepro.runs.provenance",
    "fedrepro.runs.run",
)


def fingerprint(task: str, method: str, dataset: str = "", trained: str = "") -> str:
    """Return the SHA-256 of the code behind a method, and behind a graph that this package generates.

    Where a function of another task trains a method, as one that attacks it does, the code of both counts.

    Only what computes counts, see `codehash`: a module that is moved, renamed, merged or split leaves the fingerprint
    unchanged.

    Raises:
        ArgumentError: nothing of this name is registered for the task.
    """
    begins, source = starts(task, method, dataset, trained)
    return hash_code(*begins, source=source)


def current(task: str, method: str, dataset: str = "", trained: str = "") -> str:
    """Return the fingerprint as `fingerprint` does, and nothing where no such method is registered."""
    with suppress(ArgumentError):
        return fingerprint(task, method, dataset, trained)
    return ""


def parts(task: str, method: str, dataset: str = "", trained: str = "") -> dict[str, str]:
    """Return a short hash of each part of the code behind a method: of `engine`, `data`, `papers/fedgat` and so on.

    If a fingerprint differs, these tell in which folder. `notebook` is what a notebook defines.
    """
    begins, source = starts(task, method, dataset, trained)

    def compute() -> dict[str, str]:
        by_part: dict[str, list[str]] = {}
        for statement, digest in codehash.hashes(definitions(begins), ASIDE).items():
            by_part.setdefault(part_of(statement.module.name), []).append(digest)
        return {part: _short(*sorted(by_part[part])) for part in sorted(by_part)}

    return _kept("parts", begins, compute) | ({"notebook": _short(source)} if source else {})


def part_of(module: str) -> str:
    """Return the folder of the package in which a module lies, as `engine` or `papers/fedgat`."""
    _, *folders, name = module.split(".")
    return "/".join(folders[:2] if folders[:1] == ["papers"] else folders[:1]) or name


def data(dataset: str, seed: int = 0) -> str:
    """Return the first 16 characters of one SHA-256 of the checksums of all files of a real graph.

    For a graph registered by hand it is the hash of the graph as it was last loaded with a seed. It is empty for a
    graph that this package makes, and where no checksum of a file is published or recorded.
    """
    if dataset not in SHAPES and not dataset.endswith("~incomplete"):
        own: Any = sys.modules.get("fedrepro.data.own")  # which whoever registers a graph has loaded
        return str(own.seen(dataset, seed)) if own else ""
    from fedrepro.data import sources  # takes long to import

    source = sources.source_of(dataset)
    sums = sources.known_sums(source)[0]
    whole = "".join(sums.get(file, "") for file in source.files)
    return hashlib.sha256(whole.encode()).hexdigest()[:16] if len(sums) == len(source.files) else ""


def _short(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def starts(task: str, method: str, dataset: str, trained: str = "") -> tuple[list[str], str]:
    """Return where the code behind a method begins, and the normal form of what the user wrote of it.

    That is in a notebook, a script or a module of the user's; functions that it calls there do not count.
    """
    targets = [registry.TRAIN] if task == "train" else []
    targets += [generator] if (generator := registry.generator(dataset)) else []
    begins, source = _behind(task, method)
    if ("train", trained) in registry.REGISTRY:
        more, of_trained = _behind("train", trained)
        begins, source = [*begins, *more], "\n".join(filter(None, (source, of_trained)))
    return [*targets, *begins], source


def _behind(task: str, method: str) -> tuple[list[str], str]:
    target = registry.find(task, method).target
    with suppress(ImportError, AttributeError):  # a module that is not here, as on another machine
        if _is_own(target):
            source, bases = _written_here(registry.load(task, method))
            return bases, source
    return [target], ""


def _is_own(module: str) -> bool:
    """Return whether a module, or `"module:name"`, is the user's: neither of this package nor of Python."""
    first = re.split("[.:]", module)[0]
    return first == "__main__" or first not in (codehash.PACKAGE, *sys.stdlib_module_names)


class CodeChangedError(FedreproError):
    """A file that a method was, or is to be, imported from has changed, so that its results belong to no code."""


@cache
def require_unchanged(task: str, method: str, dataset: str, trained: str = "") -> None:
    """Import a method, and raise if a file with code of its fingerprint has changed since the package was imported.

    If none has, the fingerprint is that of what was imported, whatever happens to the files later. Only a module
    that a function imports when it is called may be read later.

    Raises:
        CodeChangedError: the message names the files.
    """
    begins, _ = starts(task, method, dataset, trained)
    for begin in begins:
        importlib.import_module(begin.partition(":")[0])
    now = fedrepro.sources()
    changed = {file for file in fedrepro.SOURCES.keys() | now.keys() if fedrepro.SOURCES.get(file) != now.get(file)}
    if not changed:
        return
    reached = {statement.module.name for statement in codehash.reached(definitions(begins), ASIDE)}
    told = sorted(file for file in changed if _module_of(file) in reached)
    if told:
        files = ", ".join(Path(file).relative_to(codehash.root().parent).as_posix() for file in told)
        why = f"since this process imported the package, which may hold other code of {method!r} than the files"
        raise CodeChangedError(f"{files} changed {why}. Restart the process, or the kernel of the notebook.")


def _module_of(file: str) -> str:
    parts = Path(file).relative_to(codehash.root().parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def hash_code(*targets: str, source: str = "") -> str:
    """Return the hash of all that definitions `"module:name"` reach, and of some source.

    It is computed once a process, and without `source` not before a file of the package has changed.
    """

    def compute() -> str:
        return codehash.hash_of(definitions(targets), ASIDE, source)

    return compute() if source else _kept("fingerprints", targets, compute)


def _kept(what: str, targets: Iterable[str], compute: Callable[[], T]) -> T:
    """Return what is kept of some definitions for the package as it is; else compute it and keep it."""
    package, known = _known(what)
    name = " ".join(targets)
    if name not in known:
        known |= {name: compute()} | (kept.load(what, package) or {})
        kept.save(what, package, known)
    found: T = known[name]
    return found


@cache
def _known(what: str) -> tuple[str, dict[str, Any]]:
    """Return the state of the package, and the hashes that are kept for it."""
    package = kept.package()
    return package, kept.load(what, package) or {}


def definitions(targets: Iterable[str]) -> list[codehash.Statement]:
    return [found for target in targets if (found := codehash.definition(target)) is not None]


def _written_here(item: Any) -> tuple[str, list[str]]:
    """Return the normal form of what the user wrote (a class with its bases there), and the other bases."""
    family = getattr(item, "__mro__", (item,))
    elsewhere = [f"{base.__module__}:{base.__qualname__}" for base in family if not _is_own(base.__module__)]
    return "\n".join(_source(part) for part in family if _is_own(part.__module__)), elsewhere


def _source(item: Any) -> str:
    """Return the normal form of a class or function; methods that `dataclass` made have no source and are left out."""
    with suppress(OSError, TypeError):
        return codehash.normalize_source(textwrap.dedent(inspect.getsource(item)))
    if not inspect.isclass(item):
        return ""
    # Python finds no source for a class of a notebook, only for the functions of the class.
    parts = [getattr(part, "fget", part) for part in vars(item).values()]
    return "\n".join(_source(part) for part in parts if inspect.isfunction(part))


def commit() -> str:
    """Return the commit of the checkout, with `-dirty` where code differs from it; nothing where there is no git.

    Results that are appended to the store leave the code as it is, so only `CODE` is looked at.
    """
    told = git("rev-parse", "--show-prefix", "--short=12", "HEAD") if paths.CHECKOUT else b""
    prefix, _, name = (told.decode() or "-").partition("\n")
    if prefix or not name:  # no commit, or that of another project in whose folder this one lies
        return ""
    # The first line names the branch: without it git could not compare, and the code counts as changed.
    told = git("status", "--porcelain", "--branch", "--", *CODE)
    return name.strip() + ("" if len(told.splitlines()) == 1 else "-dirty")


@cache
def loaded_commit() -> str:
    """Return the commit when this was first asked in this process: what was imported stays what it was."""
    return commit()


def git(*arguments: str) -> bytes:
    """Return what a command of git prints in the checkout; nothing where it fails or there is no git."""
    with suppress(OSError):
        done = subprocess.run(["git", "-C", str(paths.root()), *arguments], capture_output=True)
        return done.stdout if done.returncode == 0 else b""
    return b""


def environment(device: str, partition: str = "") -> dict[str, Any]:
    """Return where results are computed: versions, machine, processor, device and threads. Never import torch.

    A GPU that this process does not have, as on the login node of a cluster, is named by `device`.
    """
    torch: Any = sys.modules.get("torch")
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # a list has one number for each nested level
    threads = torch.get_num_threads() if torch is not None else int(wanted) if wanted.isdigit() else 0
    on_gpu = device.startswith("cuda") and torch is not None and torch.cuda.is_available()
    packages = [package for name, package in DIVIDING.items() if partition.partition("(")[0] == name]
    found = {**_versions(packages), **_machine(), "device": device, "threads": threads}
    return found | (_gpu(torch, device) if on_gpu else {})


def _gpu(torch: Any, device: str) -> dict[str, Any]:
    """Return what changes a result on a GPU, or whether it fits there."""
    properties = torch.cuda.get_device_properties(device)
    driver = None
    with suppress(OSError):
        numbers = re.search(r"\d+\.[\d.]+", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
        driver = numbers and numbers[0]
    return {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_mebibytes": properties.total_memory >> 20,
        "cuda": torch.version.cuda,
        "driver": driver,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }


@cache
def _machine() -> dict[str, Any]:
    where = {"system": platform.system(), "machine": platform.machine(), "cpu": _processor()}
    return {"python": platform.python_version(), **_versions(PACKAGES), **where}


def _versions(packages: Iterable[str]) -> dict[str, str]:
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _processor() -> str:
    """Return name, family and model, as virtual machines give one name to processors that round differently."""
    with suppress(OSError):
        block = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in block.split("\n"))}
        if "model name" in fields:
            kind = [f"{short} {fields[name]}" for name, short in _KIND.items() if name in fields]
            return f"{fields['model name']} ({', '.join(kind)})" if kind else fields["model name"]
    return platform.processor()


_KIND = {"cpu family": "family", "model": "model"}
