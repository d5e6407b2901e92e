"""The store's tables, and that no other module knows its keys."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.store.leveldb import Store
from speck.store.tables import KeptTable, Table

ROOT = Path(__file__).parents[3]
HOUSE = runpy.run_path(str(ROOT / "tools/house.py"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.create(tmp_path / "store", {})
    yield store
    store.close()


def test_a_table_reads_and_writes_the_records_of_its_noun(store: Store) -> None:
    revisions, others = Table(store, "rev", digits=8), Table(store, "revision")
    for number in (10, 9, 2):
        store.write(revisions.put({"n": number}, "a", number))
    store.write({**revisions.put({"n": 1}, "b", 1), **others.put({"n": 0}, "a")})
    assert revisions.get("a", 9) == {"n": 9}
    assert not revisions.has("a", 1)
    assert [record["n"] for record in revisions.values("a")] == [2, 9, 10]
    assert [number for number, _ in revisions.items("a", after=2)] == ["00000009", "00000010"]
    assert [name for name, _ in revisions.items(starting="b")] == ["b/00000001"]
    assert revisions.last_id() == "b/00000001"
    store.write(revisions.drop("b", 1))
    assert revisions.last_id() == "a/00000010"
    assert revisions.id_of(revisions.key("a", 2)) == "a/00000002"
    assert revisions.id_of(others.key("a")) is None
    assert Table(store, "nothing").last_id() is None


def test_a_kept_table_answers_as_the_store_does(store: Store) -> None:
    store.write({f"att/{key}": {"n": n} for n, key in enumerate(("b/y", "a/x", "a/z", "aa/x"))})
    kept, table = KeptTable(store, "att"), Table(store, "att")
    for each in (kept, table):
        assert each.get("a", "x") == {"n": 1}
        assert (each.has("a", "z"), each.has("a", "y")) == (True, False)
        assert [name for name, _ in each.items("a")] == ["x", "z"]
        assert [name for name, _ in each.items("a", after="x")] == ["z"]
        assert [name for name, _ in each.items("a", starting="z")] == ["z"]
        assert [name for name, _ in each.items()] == ["a/x", "a/z", "aa/x", "b/y"]


def test_a_kept_table_notes_what_was_written(store: Store) -> None:
    kept = KeptTable(store, "head")
    record = {"revision": 1}
    kept.note("b", record)
    kept.note("a", {"revision": 2})
    assert [name for name, _ in kept.items()] == ["a", "b"]
    newest = kept.get("b")
    assert newest is not None
    newest["revision"] = 9
    assert kept.get("b") == {"revision": 1}
    kept.note("b", None)
    kept.note("c", None)
    assert [name for name, _ in kept.items()] == ["a"]
    assert kept.get("b") is None


@pytest.mark.parametrize(
    "path",
    [path for path in (ROOT / "speck").rglob("*.py") if "store" not in path.parts],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_nobody_else_knows_its_keys(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert HOUSE["_raw_reads"](tree) == 0
    assert HOUSE["_keys"](tree) == 0


def test_what_is_looked_for_would_be_found() -> None:
    text = 'self.records.store.get(f"head/{name}")\nbatch[f"own/{job}"] = {}\n'
    assert HOUSE["_raw_reads"](ast.parse(text)) == 1
    assert HOUSE["_keys"](ast.parse(text)) == 2
