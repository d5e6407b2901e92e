"""The parts of the service are made in an order in which each is given what was made before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "speck/service"
SOURCES = [FOLDER / "foundation.py", FOLDER / "service.py"]
"""The second class stands on the first."""
LONGEST = 40
"""Lines of a phase."""


def service_class(source: str) -> ast.ClassDef:
    return next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef))


def own_attribute(node: ast.AST) -> str | None:
    """`name` of `self.name`."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return node.attr if is_own and node.value.id == "self" else None


def find_faults(source: str, known: set[str] | None = None) -> list[str]:
    """What is read before it is set, in the order in which `__init__` calls the phases, also in
    functions that are called later; and what is set on another object. What is set is added to
    what is `known`."""
    methods = {
        node.name: node for node in service_class(source).body if isinstance(node, ast.FunctionDef)
    }
    known = set() if known is None else known
    known |= {name for name in methods if not name.startswith("__")}
    faults: list[str] = []

    def walk(node: ast.AST) -> None:
        for statement in node.body:
            targets = list(list_targets(statement))
            for each in ast.walk(statement):
                name = own_attribute(each)
                if name in methods and isinstance(each.ctx, ast.Load) and is_call(statement, each):
                    walk(methods[name])
                elif name and isinstance(each.ctx, ast.Load) and name not in known:
                    faults.append(f"{name} is used before it is made")
            for target in targets:
                name = own_attribute(target)
                if name is None and isinstance(target, ast.Attribute):
                    faults.append(f"{ast.unparse(target)} is set afterwards")
                elif name is not None:
                    known.add(name)

    walk(methods["__init__"])
    return faults


def list_targets(statement: ast.AST) -> Iterator[ast.AST]:
    for each in ast.walk(statement):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        elif isinstance(each, ast.AnnAssign):
            yield each.target


def is_call(statement: ast.AST, function: ast.AST) -> bool:
    return any(isinstance(c, ast.Call) and c.func is function for c in ast.walk(statement))


def test_nothing_is_used_before_it_is_made_nor_set_on_another_part_afterwards() -> None:
    known: set[str] = set()
    assert [find_faults(source.read_text(), known) for source in SOURCES] == [[], []]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_each_phase_is_short(source: Path) -> None:
    sizes = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in service_class(source.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: size for name, size in sizes.items() if size > LONGEST} == {}


def test_what_is_looked_for_would_be_found() -> None:
    source = """
class A:
    def __init__(self):
        self.a = lambda: self.b.f()
        self._phase()
        self.a.g = self.b

    def _phase(self):
        self.b = 1
"""
    assert find_faults(source) == ["b is used before it is made", "self.a.g is set afterwards"]
