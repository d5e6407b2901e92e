"""Use cases take and return records: what JSON is made of them is chosen in `speck.api`."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools"))  # where its imports are
HOUSE = runpy.run_path(str(ROOT / "tools/house.py"))


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


def test_nothing_is_longer_than_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    """Modules and classes, also of the tests and benchmarks."""
    assert HOUSE["check"]() == 0, capsys.readouterr().err


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


def test_long_modules_and_classes_are_named() -> None:
    one = "class A:\n    x = 1\n" + "\n" * 298
    assert HOUSE["find_long"]("a.py", f"{one}\ny = 2") == []
    assert HOUSE["find_long"]("a.py", f"{one}    y = 2") == ["a.py: A: 301 lines"]
    assert HOUSE["find_long"]("a.py", "\n" * 501) == ["a.py: 501 lines"]
