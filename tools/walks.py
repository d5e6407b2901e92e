"""How far one has to walk to understand a function, by the texts of `speck/deploy`.

One goes once to each function below it and comes back. Below a function that takes only values
which it cannot change, and returns one, one need not go: its signature says what it is about. So
each return counts but those from below such functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CHANGEABLE = {"list", "dict", "set", "defaultdict", "deque"}
"""What a function may change if it is given one."""


@dataclass(frozen=True)
class _Function:
    module: str
    owner: str | None
    node: ast.FunctionDef


class Walks:
    """The functions of some modules, and which of these one has to open."""

    def __init__(self, modules: Mapping[str, ast.Module]):
        """The modules by their full names."""
        self._functions: dict[tuple[str, str], _Function] = {}
        self._imported: dict[str, dict[str, str]] = {}
        self._changeable = set(CHANGEABLE)
        for name, tree in modules.items():
            self._imported[name] = dict(_imported_names(tree))
            for node in tree.body:
                if isinstance(node, ast.FunctionDef):
                    self._functions[name, node.name] = _Function(name, None, node)
                if isinstance(node, ast.ClassDef):
                    self._add_class(name, node)

    def _add_class(self, module: str, node: ast.ClassDef) -> None:
        if not _is_frozen(node):
            self._changeable.add(node.name)
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                key = module, f"{node.name}.{each.name}"
                self._functions[key] = _Function(module, node.name, each)

    def count(self, module: str, name: str) -> int:
        """The returns of a walk of a function."""
        visited, ahead = {(module, name)}, [(module, name)]
        while ahead:
            for key in self._find_called(self._functions[ahead.pop()]):
                if key in visited:
                    continue
                visited.add(key)
                if self._must_be_opened(self._functions[key]):
                    ahead.append(key)
        return len(visited) - 1

    def _find_called(self, function: _Function) -> Iterator[tuple[str, str]]:
        for node in ast.walk(function.node):
            key: tuple[str, str] | None = None
            if isinstance(node, ast.Name):
                module = self._imported[function.module].get(node.id, function.module)
                key = module, node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                is_own = node.value.id == "self" and function.owner is not None
                key = (function.module, f"{function.owner}.{node.attr}") if is_own else None
            if key in self._functions:
                yield key

    def _must_be_opened(self, function: _Function) -> bool:
        """Whether a function may change something, or returns nothing."""
        arguments = function.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        taken = {name for each in every for name in _names_in(each.annotation)}
        returned = function.node.returns
        is_silent = isinstance(returned, ast.Constant) and returned.value is None
        return is_silent or function.owner in self._changeable or bool(taken & self._changeable)


def _names_in(annotation: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Name):
            yield node.id


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield alias.asname or alias.name, node.module


def _is_frozen(node: ast.ClassDef) -> bool:
    """Whether the values of a class cannot be changed."""
    bases = {name for base in node.bases for name in _names_in(base)}
    if bases & {"NamedTuple", "Enum", "StrEnum", "IntEnum", "Protocol"}:
        return True
    return any(
        isinstance(keyword.value, ast.Constant) and keyword.arg == "frozen" and keyword.value.value
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


def read_modules(root: Path, folder: str) -> dict[str, ast.Module]:
    """The modules below a folder, by their full names."""
    modules = {}
    for path in sorted((root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = ast.parse(path.read_text())
    return modules
