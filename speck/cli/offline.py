"""Access to a service's home while the service does not run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from speck.errors import InvalidError, StoreHeldError
from speck.model.values import LOCAL, JsonObject

if TYPE_CHECKING:
    from pathlib import Path

    from speck.config import Config
    from speck.service.tokens import Tokens
    from speck.store.backup import Backup


def config_at(home: str | None) -> Config:
    """The configuration from the environment, with `home` if it is given."""
    from speck.config import Config

    try:
        return Config.from_env({**os.environ, **({"SPECK_HOME": home} if home else {})})
    except ValueError as error:
        raise InvalidError(str(error)) from error


def restore_store(config: Config, file: Path) -> Backup:
    """Create the store from a backup, and record that in the audit log. Raises StoreError; nothing
    is recorded then, since a service may hold the store and the log."""
    from speck.clock import SystemClock
    from speck.store.audit import Audit, Entry
    from speck.store.audit_seal import StoredSeal
    from speck.store.backup import restore_backup
    from speck.store.records import Records

    clock = SystemClock()
    backup = restore_backup(config.store, file, clock.now())
    detail = {"file": str(file.resolve()), "taken": backup.header.get("at")}
    records = Records.open(config.store, clock)
    audit = Audit(config.audit, clock, keeper=StoredSeal(records))
    audit.record(Entry("speck restore", "/restored", "done", token=LOCAL, detail=detail))
    audit.close()
    records.store.close()
    return backup


@contextmanager
def open_tokens(home: str | None, what: str | None = None) -> Iterator[Tokens]:
    """Open the tokens in a store; create the store if there is none. `what` is to be done to them,
    for the audit log: None if they are only read.

    Raises StoreError when a service holds it.
    """
    from speck.clock import SystemClock
    from speck.service.tokens import Tokens
    from speck.store.audit import Audit, Entry
    from speck.store.audit_seal import StoredSeal
    from speck.store.records import Records

    config = config_at(home)
    config.home.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    records = Records.open(config.store, clock)
    audit = Audit(config.audit, clock, keeper=StoredSeal(records))
    entry, outcome = Entry(f"speck {what}", "/tokens", "refused", token=LOCAL), "refused"
    intent = None
    if what is not None:
        audit.report_unfinished()
        intent = audit.begin(entry)
    try:
        yield Tokens(records, clock, config.last_uses)
        outcome = "done"
    finally:
        if what is not None:
            audit.record(replace(entry, outcome=outcome), intent)
        audit.close()
        records.store.close()


def verify_audit(home: str | None, contains: str | None) -> JsonObject | None:
    """The verdict on the audit log of a home (`Verdict.to_json`); None while a service holds its
    store, which knows how the log ends. Raises InvalidError when there is no log."""
    from speck.clock import SystemClock
    from speck.store.audit_log import verify
    from speck.store.audit_seal import StoredSeal
    from speck.store.leveldb import Store
    from speck.store.records import Records

    config = config_at(home)
    if not Store.exists(config.store):
        return verify(config.audit, contains).to_json()
    try:
        records = Records.open(config.store, SystemClock())
    except StoreHeldError:
        return None
    try:
        return verify(config.audit, contains, StoredSeal(records).load()).to_json()
    finally:
        records.store.close()
