"""Use cases take and return records: what JSON is made of them is chosen in `speck.api`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST_CLASS = 300
JSON = ("JsonObject", "dict[str, Any]", "dict[str, object]")


def list_annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    named = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    others = (function.args.vararg, function.args.kwarg)
    for argument in (*named, *(each for each in others if each is not None)):
        if argument.annotation is not None:
            yield ast.unparse(argument.annotation)
    if function.returns is not None:
        yield ast.unparse(function.returns)


def find_untyped(source: str) -> list[str]:
    """The functions whose signatures hold JSON, by name."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(word in text for text in list_annotations(node) for word in JSON)
    ]


def find_long_classes(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_CLASS
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "speck/service").glob("*.py")), ids=lambda p: p.stem
)
def test_no_signature_of_a_use_case_holds_json(path: Path) -> None:
    assert find_untyped(path.read_text()) == []


@pytest.mark.parametrize("package", ["service", "store", "api", "sites"])
def test_no_class_is_long(package: str) -> None:
    modules = (ROOT / "speck" / package).rglob("*.py")
    assert [each for path in modules for each in find_long_classes(path.read_text())] == []


def test_what_is_looked_for_would_be_found() -> None:
    source = "class A:\n    def f(self, a: int, **b: dict[str, Any]) -> None: ...\n" + "\n" * 300
    assert find_untyped(source + "    def g(self) -> list[JsonObject]: ...") == ["f", "g"]
    assert find_long_classes(source + "    x = 1") == ["A"]
