"""What stands behind a result: the code that computed it, and where it ran.

Nothing here imports the code it looks at, nor torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import platform
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedrepro import registry

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "pymetis")

# What runs, stores and shows results, but has no part in their values.
_ASIDE = """
    __main__ cli compare computing engine errors executors exhibits figures notebook paths provenance registry
    report runs session store verification
"""
_PACKAGE = Path(__file__).resolve().parent


def fingerprint(task: str, method: str, dataset: str = "") -> str:
    """SHA-256 of the code behind a method and a graph this package makes: their modules and all these import from this
    package, transitively.

    Imports are found in the source. Comments, docstrings and formatting do not count, and neither do
    the modules that run, store and show results.

    Raises:
        ArgumentError: nothing of this name is registered for the task.
    """
    module = registry.find(task, method).target.partition(":")[0]
    modules = ["fedrepro.tasks"] if task == "train" else []
    modules += [made_by for start, made_by in registry.GENERATORS.items() if dataset.startswith(start)]
    own = ""
    if module == "__main__":
        own, bases = _written_here(registry.load(task, method))
        modules += bases
    else:
        modules.append(module)
    return _hashed(own, *modules)


@cache
def _hashed(own: str, *modules: str) -> str:
    """The fingerprint of some source and of modules, which are read once a process anyway."""
    code = {"": own, **_code(*modules)}
    return hashlib.sha256(repr(sorted(code.items())).encode()).hexdigest()


def _written_here(item: Any) -> tuple[str, list[str]]:
    """A class or function written in a notebook, and its bases there: their normalized source, and the modules of
    the other bases.
    """
    family = getattr(item, "__mro__", (item,))
    modules = [base.__module__ for base in family if _is_ours(base.__module__)]
    return "\n".join(_source(part) for part in family if part.__module__ == "__main__"), modules


def _source(item: Any) -> str:
    """Normalized; what has none (methods that `dataclass` made) is left out."""
    with suppress(OSError, TypeError):
        return normalized(textwrap.dedent(inspect.getsource(item)))
    if not inspect.isclass(item):
        return ""
    # Python finds no source for a class of a notebook, only for its functions
    parts = [getattr(part, "fget", part) for part in vars(item).values()]
    return "\n".join(_source(part) for part in parts if inspect.isfunction(part))


def _code(*modules: str) -> dict[str, str]:
    """Normalized source of modules and of what they import from this package."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        aside = name == "fedrepro" or name.removeprefix("fedrepro.") in _ASIDE.split()
        if name not in found and not aside:
            found[name], imports = _module(name)
            waiting += imports
    return found


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    path = _path(name)
    if path is None:
        return "", ()
    source = path.read_text(encoding="utf-8")
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return normalized(source), tuple(sorted(set(_imports(ast.parse(source), package))))


def _is_ours(module: str) -> bool:
    return module == "fedrepro" or module.startswith("fedrepro.")


def _path(module: str) -> Path | None:
    """The source of a module; one of this package is looked up without importing its parents."""
    if _is_ours(module):
        base = _PACKAGE.joinpath(*module.split(".")[1:])
        tried = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in tried if path.is_file()), None)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Modules of this package that a module of `package` imports anywhere in its source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if _is_ours(base):
                parts = (f"{base}.{alias.name}" for alias in node.names)
                yield from (part if _path(part) else base for part in parts)


def normalized(source: str) -> str:
    """The syntax tree of a source, without docstrings, the same under every Python this package runs on.

    `ast.unparse` would do, but it writes some strings and f-strings otherwise from one Python to the next.
    """
    return repr(_shape(ast.parse(source)))


def _shape(node: Any) -> Any:
    if isinstance(node, list):
        return [_shape(entry) for entry in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _NO_CODE}
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
    # None, [] and no such field all mean "absent": which of them depends on the version
    present = [(name, _shape(value)) for name, value in fields.items() if value is not None and value != []]
    return [type(node).__name__, *present]


_NO_CODE = ("ctx", "kind", "type_comment", "type_ignores")


def environment(device: str) -> dict[str, Any]:
    """Where results are computed: versions, machine, processor, device, threads. Never imports torch.

    A GPU that this process has not, as on the login node of a cluster, is called by `device`.
    """
    torch: Any = sys.modules.get("torch")
    name = device
    if device.startswith("cuda") and torch is not None and torch.cuda.is_available():
        name = torch.cuda.get_device_name(device)
    threads = torch.get_num_threads() if torch is not None else int(os.environ.get("OMP_NUM_THREADS") or 0)
    return {**_machine(), "device": name, "threads": threads}


@cache
def _machine() -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {**versions, "system": platform.system(), "machine": platform.machine(), "cpu": _processor()}


def _processor() -> str:
    """Name, family and model: virtual machines call processors alike whose BLAS kernels round differently."""
    with suppress(OSError):
        block = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in block.split("\n"))}
        if "model name" in found:
            kind = [f"{short} {found[name]}" for name, short in _KIND.items() if name in found]
            return f"{found['model name']} ({', '.join(kind)})" if kind else found["model name"]
    return platform.processor()


_KIND = {"cpu family": "family", "model": "model"}
