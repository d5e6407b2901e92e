"""Access to a service's home while the service does not run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from speck.errors import InvalidError
from speck.model.values import LOCAL

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
    from speck.service.audit import Audit, Entry
    from speck.store.backup import restore_backup

    clock = SystemClock()
    backup = restore_backup(config.store, file, clock.now())
    detail = {"file": str(file.resolve()), "taken": backup.header.get("at")}
    audit = Audit(config.audit, clock)
    audit.record(Entry("speck restore", "/restored", "done", token=LOCAL, detail=detail))
    audit.close()
    return backup


@contextmanager
def open_tokens(home: str | None, what: str | None = None) -> Iterator[Tokens]:
    """Open the tokens in a store; create the store if there is none. `what` is to be done to them,
    for the audit log: None if they are only read.

    Raises StoreError when a service holds it.
    """
    from speck.clock import SystemClock
    from speck.service.audit import Audit, Entry
    from speck.service.tokens import Tokens
    from speck.store.records import Records

    config = config_at(home)
    config.home.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    records = Records.at(config.store, clock)
    audit = Audit(config.audit, clock)
    outcome = "refused"
    try:
        yield Tokens(records, clock, config.last_uses)
        outcome = "done"
    finally:
        if what is not None:
            audit.record(Entry(f"speck {what}", "/tokens", outcome, token=LOCAL))
        audit.close()
        records.store.close()
