"""Use cases take and return records: what JSON is made of them is chosen in `speck.api`."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST_CLASS = 300
LONGEST_MODULE = 500
sys.path.append(str(ROOT / "tools"))  # where its imports are
HOUSE = runpy.run_path(str(ROOT / "tools/house.py"))


def find_long_classes(before: str, source: str) -> list[str]:
    return [
        before + node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_CLASS
    ]


def test_no_signature_of_a_use_case_holds_json() -> None:
    trees = [
        ast.parse(path.read_text())
        for folder in HOUSE["PRODUCT"]
        for path in (ROOT / folder).rglob("*.py")
    ]
    aliases = HOUSE["find_aliases"](trees)
    assert aliases > {"Any", "JsonObject", "Row"}
    untyped = {
        f"{path.stem}.{name}"
        for path in (ROOT / "speck/service").glob("*.py")
        for name in HOUSE["find_untyped"](ast.parse(path.read_text()), aliases)
    }
    assert untyped == set()


def test_no_class_is_long() -> None:
    found = {
        name
        for folder in HOUSE["PRODUCT"]
        for path in (ROOT / folder).rglob("*.py")
        for name in find_long_classes(f"{path.relative_to(ROOT)}: ", path.read_text())
    }
    assert found == set()


def test_no_module_is_long() -> None:
    paths = [path for folder in HOUSE["PRODUCT"] for path in (ROOT / folder).rglob("*.py")]
    assert [p for p in paths if len(p.read_text().splitlines()) > LONGEST_MODULE] == []


UNTYPED: Mapping[str, str] = {
    "an alias": "Row = dict[str, Any]\nRows = list[Row]\ndef f(a: Rows) -> None: ...",
    "a mapping": "def f(a: Mapping[str, Any]) -> None: ...",
    "a mapping to objects": "def f(**a: dict[str, object]) -> None: ...",
    "a qualified name": "def f(a: typing.Any) -> None: ...",
    "quotes": "def f() -> 'list[JsonObject]': ...",
    "an inner type": "class A:\n    async def f(self, *, a: Poll[Any] | None) -> None: ...",
}


@pytest.mark.parametrize("source", UNTYPED.values(), ids=UNTYPED)
def test_a_signature_that_says_nothing_is_found(source: str) -> None:
    tree = ast.parse(source)
    assert HOUSE["find_untyped"](tree, HOUSE["find_aliases"]([tree])) == ["f"]


def test_a_signature_that_says_what_is_inside_is_none() -> None:
    source = "Key = tuple[str, int]\ndef f(a: Key, b: Literal['x y']) -> Mapping[str, int]: ..."
    tree = ast.parse(source)
    assert HOUSE["find_untyped"](tree, HOUSE["find_aliases"]([tree])) == []


def test_circles_are_found() -> None:
    names = ("speck/a.py", "speck/b.py", "speck/c.py")
    texts = ("import speck.b", "def f():\n    from speck import c", "from speck.a import x")
    modules = {ROOT / name: ast.parse(text) for name, text in zip(names, texts, strict=True)}
    (circle,) = HOUSE["find_circles"](modules)
    assert set(circle) == {"speck.a", "speck.b", "speck.c"}
    del modules[ROOT / "speck/c.py"]
    assert HOUSE["find_circles"](modules) == []


def test_what_is_looked_for_would_be_found() -> None:
    source = "class A:\n    def f(self, a: int, **b: dict[str, Any]) -> None: ...\n" + "\n" * 300
    assert find_long_classes("a.py: ", source + "    x = 1") == ["a.py: A"]
