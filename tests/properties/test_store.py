"""A store equals a dict, whatever is put and deleted, closed and opened in between."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from speck.clock import SystemClock
from speck.model.values import JsonObject
from speck.store.backup import read_backup, write_backup
from speck.store.leveldb import Store
from tests.examples import costly

KEYS = st.text("ab/ÿ", min_size=1, max_size=4)
RECORDS = st.dictionaries(
    st.text(max_size=3),
    st.integers(-(2**60), 2**60) | st.text(max_size=5) | st.none() | st.lists(st.booleans()),
    max_size=3,
)
BATCHES = st.dictionaries(KEYS, st.none() | RECORDS, max_size=5)
REOPEN = st.none()


def check(store: Store, expected: dict[str, JsonObject]) -> None:
    rows = [(key, record) for key, record in store.scan("") if key != "meta/store"]
    assert rows == sorted(expected.items(), key=lambda row: row[0].encode())
    for prefix in ("a", "b/", "ÿ", "aÿ"):
        keys = [key for key, _ in rows if key.startswith(prefix)]
        assert [key for key, _ in store.scan(prefix)] == keys
        last = store.last(prefix)
        assert (last[0] if last else None) == (keys[-1] if keys else None)
        if keys:
            assert [key for key, _ in store.scan(prefix, after=keys[0])] == keys[1:]


@costly()
@given(st.lists(REOPEN | BATCHES, max_size=8))
def test_any_sequence_of_puts_and_deletes_equals_a_dict(
    steps: list[dict[str, JsonObject | None] | None],
) -> None:
    expected: dict[str, JsonObject] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = Store.create(path, {})
        for step in steps:
            if step is None:
                store.compact()
                store.close()
                store = Store.open(path)
                continue
            store.write(step)
            for key, record in step.items():
                expected.pop(key, None)
                if record is not None:
                    expected[key] = record
        check(store, expected)
        backup = Path(folder) / "backup.gz"
        backup.write_bytes(b"".join(write_backup(store, SystemClock().now())))
        store.close()
        copy = Store.create(Path(folder) / "copy", read_backup(backup).records)
        check(copy, expected)
        copy.close()
