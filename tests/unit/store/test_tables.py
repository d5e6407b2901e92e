"""The store's tables, and that no other module knows its keys."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from speck.store.codec import to_json
from speck.store.leveldb import Store
from speck.store.record_types import TABLES
from speck.store.tables import Batch, KeptTable, Table, Tables

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools"))  # where its imports are
HOUSE = runpy.run_path(str(ROOT / "tools/house.py"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.create(tmp_path / "store", {})
    yield store
    store.close()


@dataclass(frozen=True, slots=True)
class Number:
    n: int


def write(store: Store, batch: Batch) -> None:
    store.write({key: None if each is None else to_json(each) for key, each in batch.items()})


def test_a_table_reads_and_writes_the_records_of_its_noun(store: Store) -> None:
    tables = Tables(store)
    revisions, others = tables.table("rev", Number, digits=8), tables.table("revision", Number)
    for number in (10, 9, 2):
        write(store, revisions.put(Number(number), "a", number))
    write(store, {**revisions.put(Number(1), "b", 1), **others.put(Number(0), "a")})
    assert revisions.get("a", 9) == Number(9)
    assert not revisions.has("a", 1)
    assert [record.n for record in revisions.values("a")] == [2, 9, 10]
    assert [number for number, _ in revisions.items("a", after=2)] == ["00000009", "00000010"]
    assert [name for name, _ in revisions.items(starting="b")] == ["b/00000001"]
    assert list(revisions.scan("b")) == [("00000001", {"n": 1})]
    assert revisions.last_id() == "b/00000001"
    write(store, revisions.drop("b", 1))
    assert revisions.last_id() == "a/00000010"
    assert revisions.id_of(revisions.key("a", 2)) == "a/00000002"
    assert revisions.id_of(others.key("a")) is None
    assert tables.table("nothing", Number).last_id() is None


def test_a_kept_table_answers_as_the_store_does(store: Store) -> None:
    store.write({f"att/{key}": {"n": n} for n, key in enumerate(("b/y", "a/x", "a/z", "aa/x"))})
    kept, table = KeptTable(store, "att", Number), Table(store, "att", Number)
    for each in (kept, table):
        assert each.get("a", "x") == Number(1)
        assert (each.has("a", "z"), each.has("a", "y")) == (True, False)
        assert [name for name, _ in each.items("a")] == ["x", "z"]
        assert [name for name, _ in each.items("a", after="x")] == ["z"]
        assert [name for name, _ in each.items("a", starting="z")] == ["z"]
        assert [name for name, _ in each.items()] == ["a/x", "a/z", "aa/x", "b/y"]


def test_a_kept_table_notes_what_was_written(store: Store) -> None:
    tables = Tables(store)
    kept = tables.kept("head", Number)
    tables.announce({**kept.put(Number(1), "b"), **kept.put(Number(2), "a"), "other/b": Number(3)})
    assert [name for name, _ in kept.items()] == ["a", "b"]
    assert kept.get("b") == Number(1)
    tables.announce({**kept.drop("b"), **kept.drop("c")})
    assert [name for name, _ in kept.items()] == ["a"]
    assert kept.get("b") is None


def test_who_keeps_records_in_memory_learns_of_all(store: Store) -> None:
    store.write({"n/a": {"n": 1}})
    tables, seen = Tables(store), list[tuple[str, Number | None]]()
    table = tables.table(
        "n", Number, on_write=lambda identity, record: seen.append((identity, record))
    )
    tables.announce({**table.put(Number(2), "b"), **table.drop("a")})
    assert seen == [("a", Number(1)), ("b", Number(2)), ("a", None)]


@pytest.mark.parametrize(
    "path",
    [path for path in (ROOT / "speck").rglob("*.py") if "store" not in path.parts],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_nobody_else_knows_its_keys(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert HOUSE["_raw_reads"](tree) == 0
    assert HOUSE["_keys"](tree, TABLES.keys()) == 0


def test_what_is_looked_for_would_be_found() -> None:
    text = 'self.records.store.get(f"head/{name}")\nbatch[f"own/{job}"] = {}\n'
    text += 'store.get("head/a")\nself._store.last("rev/")\nbatch = {"site/a": None}\n'
    text += 'open("etc/x")\nanswer.get("head")\n'
    assert HOUSE["_raw_reads"](ast.parse(text)) == 3
    assert HOUSE["_keys"](ast.parse(text), TABLES.keys()) == 5
    types = ast.parse((ROOT / "speck/store/record_types.py").read_text())
    assert HOUSE["find_nouns"](types) == set(TABLES)
