"""Hash code by what it computes, not by where it stands.

The unit is a top-level statement: a function, a class or an assignment. A statement *reaches* the definitions of
this package that its names refer to, and those reach others. The hash of some code is the hash of the sorted hashes
of all statements reached. It does not know the names of modules, functions, classes and local variables, nor the
order of statements, imports, comments, docstrings, annotations of functions, or formatting. So moving, renaming,
merging or splitting modules leaves it unchanged. Names that callers see (parameters, methods, fields) do count.

A reference counts by the hash of the definition it resolves to. Two functions exchanged under one local name are
therefore seen. References can be circular, so the hashes are refined in `ROUNDS` rounds: the first knows a
statement by its own text, each further one also by the statements it refers to.

Nothing here imports the code it reads.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "fedrepro"
ROUNDS = 3

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NO_CODE = ("ctx", "kind", "type_comment", "type_ignores", "returns")
_elsewhere: Mapping[str, str] | None = None  # what `reading` reads in place of the package's files


@dataclass(eq=False)
class Statement:
    """A top-level statement of a module, and what its normal form refers to."""

    module: Module
    node: ast.stmt
    names: tuple[str, ...]
    references: list[Statement] = field(default_factory=list)
    text: str | None = None

    def normalize(self) -> str:
        """Return the normal form; `<k>` in it is the k-th entry of `references`."""
        if self.text is None:
            self.text = repr(_Normalizer(self).shape(self.node))
        return self.text


class Module:
    """The top-level statements of one source file, and what each name in it is bound to."""

    def __init__(self, name: str, source: str, is_package: bool) -> None:
        self.name = name
        self.package = name if is_package else name.rpartition(".")[0]
        self.bound: dict[str, Statement | str] = {}
        self.effects: list[Statement] = []  # statements that bind no new name, such as a call or `TABLE |= more`
        for node in ast.parse(source).body:
            imports = dict(_imports(node, self.package))
            if isinstance(node, ast.Import | ast.ImportFrom) or _is_type_checking(node):
                self.bound |= imports
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            names = () if isinstance(node, ast.AugAssign) else tuple(dict.fromkeys(_stores([node])))
            statement = Statement(self, node, names)
            if names:
                self.bound |= dict.fromkeys(names, statement)
            else:
                self.effects.append(statement)

    def resolve(self, name: str, attributes: list[str]) -> tuple[Statement | Module | str, list[str]]:
        """Follow a name and its attributes through imports.

        Returns:
            The statement, module or external name behind it, and the attributes that are left.
        """
        bound = self.bound.get(name)
        if bound is None:
            return name, attributes
        return (bound, attributes) if isinstance(bound, Statement) else follow(bound, attributes)


def follow(target: str, attributes: list[str]) -> tuple[Statement | Module | str, list[str]]:
    """Resolve an import target such as `"fedrepro.paths"` or `"fedrepro.errors:require"`, see `Module.resolve`."""
    path, _, name = target.partition(":")
    if name:
        attributes = [name, *attributes]
    if path.split(".")[0] != PACKAGE:
        return target.replace(":", "."), attributes[1:] if name else attributes
    while attributes and (inner := load_module(f"{path}.{attributes[0]}")):
        path, attributes = inner.name, attributes[1:]
    module = load_module(path)
    if module is None or not attributes:
        return module or path, attributes
    if attributes[0] not in module.bound:
        return f"{PACKAGE}.{attributes[0]}", attributes[1:]
    return module.resolve(attributes[0], attributes[1:])


def definition(target: str) -> Statement | None:
    """Return the statement behind `"module:name"`, or None if this package has none."""
    module, _, name = target.partition(":")
    bound = follow(f"{module}:{name.partition('.')[0]}", [])[0]
    return bound if isinstance(bound, Statement) else None


def reached(starts: Iterable[Statement], aside: Collection[str]) -> list[Statement]:
    """Return the statements that some statements reach, themselves included, without those of modules `aside`."""
    waiting = [start for start in starts if start.module.name not in aside]
    seen: dict[Statement, None] = {}
    while waiting:
        statement = waiting.pop()
        if statement in seen:
            continue
        seen[statement] = None
        statement.normalize()
        waiting += [target for target in statement.references if target.module.name not in aside]
        for effect in statement.module.effects:
            effect.normalize()
            if statement in effect.references:
                waiting.append(effect)
    return list(seen)


def hash_of(starts: Iterable[Statement], aside: Collection[str], source: str = "") -> str:
    """Return the SHA-256 of all code that some statements reach.

    Args:
        starts: where to begin.
        aside: dotted names of modules whose code does not count.
        source: a normal form that is hashed too: code that is in no file.
    """
    known = hashes(starts, aside)
    for _ in range(ROUNDS):
        known = {
            statement: _digest(statement.normalize(), *(known.get(target, "aside") for target in statement.references))
            for statement in known
        }
    return _digest(source, *sorted(set(known.values())))


def hashes(starts: Iterable[Statement], aside: Collection[str]) -> dict[Statement, str]:
    """Return the hash of the text of each statement that some statements reach, without what it refers to."""
    return {statement: _digest(statement.normalize()) for statement in reached(starts, aside)}


def normalize_source(source: str) -> str:
    """Return the normal form of code that belongs to no module; its global names stay as they are."""
    module = Module("", "", False)
    return "\n".join(
        repr(_Normalizer(Statement(module, node, tuple(_stores([node])))).shape(node))
        for node in ast.parse(source).body
    )


@cache
def load_module(name: str) -> Module | None:
    """Return a module of this package, read once, without importing it; None if there is none of this name."""
    first, *rest = name.split(".")
    if first != PACKAGE:
        return None
    if _elsewhere is not None:
        found = [file for file in ("/".join(rest) + ".py", "/".join([*rest, "__init__.py"])) if file in _elsewhere]
        return Module(name, _elsewhere[found[0]], found[0].endswith("__init__.py")) if found else None
    base = root().joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return Module(name, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    return None


@contextmanager
def reading(files: Mapping[str, str]) -> Iterator[None]:
    """Read another state of the package than its files, such as that of a former commit.

    Args:
        files: the source of each file by its path below the package, such as `engine/training.py`.
    """
    global _elsewhere
    load_module.cache_clear()
    _elsewhere = files
    try:
        yield
    finally:
        _elsewhere = None
        load_module.cache_clear()


@cache
def root() -> Path:
    """Return the folder of the package's sources."""
    return Path(__file__).resolve().parents[__name__.count(".") - 1]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield the local name and the target of each import in a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield alias.asname or alias.name, f"{base}:{alias.name}"


def _stores(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that nodes bind in the scope they stand in, in the order of the source; not by imports."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, _COMPREHENSIONS):
            # Only an assignment expression leaves the scope of a comprehension.
            yield from (inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                yield node.id
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                yield node.name
            elif isinstance(node, ast.MatchMapping) and node.rest:
                yield node.rest
            yield from _stores(ast.iter_child_nodes(node))


class _Normalizer:
    """Write a statement as nested lists, the same under every Python this package runs on."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.locals = 0
        self.index: dict[Statement, int] = {}

    def shape(self, node: ast.stmt) -> Any:
        top = {name: ["bound", str(k)] for k, name in enumerate(self.statement.names)}
        return self._shape(node, [top], {}, name_counts=False)

    def _shape(self, node: Any, scopes: list[dict[str, Any]], inside: dict[str, Any], name_counts: bool = True) -> Any:
        """Shape a node.

        Args:
            node: a node, a list of nodes or a plain value.
            scopes: what the names of the functions around it mean, outermost first.
            inside: what the names of the class body directly around it mean.
            name_counts: whether the name of a function or class is part of its shape.
        """
        if isinstance(node, list):
            kept = [entry for entry in node if not isinstance(entry, ast.Import | ast.ImportFrom)]
            return [self._shape(entry, scopes, inside) for entry in kept]
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.Name | ast.Attribute) and (reference := self._reference(node, scopes, inside)):
            return reference
        fields = {name: value for name, value in ast.iter_fields(node) if name not in _NO_CODE}
        shaped: dict[str, Any] = {}
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            fields["body"] = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        if isinstance(node, ast.JoinedStr):
            fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
        if isinstance(node, ast.arg) or (isinstance(node, ast.AnnAssign) and not inside):
            fields |= {"annotation": None, "simple": None}  # only the fields of a class are made from annotations
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not name_counts:
            fields["name"] = None
        elif isinstance(name := fields.get("name"), str):
            shaped["name"] = self._look_up(name, scopes, inside) or name
        if isinstance(node, _FUNCTIONS):
            shaped["body"] = self._shape(fields["body"], [*scopes, self._scope(node)], {})
        elif isinstance(node, ast.ClassDef):
            members = {member: ["field", member] for member in _stores(fields["body"])}
            shaped["body"] = self._shape(fields["body"], scopes, members or {"": []})
        elif isinstance(node, _COMPREHENSIONS):
            scopes = [*scopes, self._numbered(_stores(part.target for part in node.generators))]
        # None, [] and no such field all mean "absent". It depends on the version of Python which of them it is.
        return [
            type(node).__name__,
            *(
                (name, shaped[name] if name in shaped else self._shape(value, scopes, inside))
                for name, value in fields.items()
                if value is not None and value != []
            ),
        ]

    def _reference(self, node: ast.expr, scopes: list[dict[str, Any]], inside: dict[str, Any]) -> Any:
        """Shape a name, or an attribute of an imported module, that refers to something outside the statement."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        known = self._look_up(node.id, scopes, inside)
        if isinstance(known, list):
            return None if attributes else known
        target, rest = (
            self.statement.module.resolve(node.id, attributes) if known is None else follow(known, attributes)
        )
        if isinstance(target, Module):
            # If a module is used as a value, everything in it may be meant.
            parts = [bound for bound in target.bound.values() if isinstance(bound, Statement)]
            return ["module", *sorted(str(self._refer(part)) for part in dict.fromkeys(parts)), *rest]
        if isinstance(target, str):
            return ["global", ".".join([target, *rest])]
        within = target.names.index(self._defined(target, node.id, attributes)) if len(target.names) > 1 else 0
        return ["ref", self._refer(target), within, *rest]

    def _defined(self, target: Statement, name: str, attributes: list[str]) -> str:
        """Return the name under which a statement that binds several defines what is meant."""
        return next((known for known in (name, *attributes) if known in target.names), target.names[0])

    def _refer(self, target: Statement) -> str:
        if target not in self.index:
            self.index[target] = len(self.statement.references)
            self.statement.references.append(target)
        return f"<{self.index[target]}>"

    def _look_up(self, name: str, scopes: list[dict[str, Any]], inside: dict[str, Any]) -> Any:
        """Return the shape of a local name, the target of an imported one, or None for a global one."""
        for scope in (inside, *reversed(scopes)):
            if name in scope:
                return scope[name]
        return None

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, Any]:
        """Return what the names bound by a function mean: parameters themselves, locals numbers."""
        a = node.args
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        scope: dict[str, Any] = {each.arg: ["parameter", each.arg] for each in given}
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        outer = {name for stmt in ast.walk(node) if isinstance(stmt, ast.Global | ast.Nonlocal) for name in stmt.names}
        scope |= self._numbered(name for name in _stores(body) if name not in scope and name not in outer)
        package = self.statement.module.package
        for statement in body:
            scope |= {name: target for name, target in _imports(statement, package) if name not in scope}
        return scope

    def _numbered(self, names: Iterable[str]) -> dict[str, Any]:
        numbered = {}
        for name in dict.fromkeys(names):
            numbered[name] = ["local", str(self.locals)]
            self.locals += 1
        return numbered
