"""The seal of the audit log in the store."""

from __future__ import annotations

from dataclasses import asdict

from speck.service.audit_log import Seal
from speck.store.records import Records

_RECORD = "audit"


class StoredSeal:
    """Keeps it in a record that no backup holds: another store has a log of its own."""

    def __init__(self, records: Records):
        self._records = records

    def load(self) -> Seal | None:
        """The seal, once there is one."""
        record = self._records.meta.get(_RECORD)
        return None if record is None else Seal(**record)

    def save(self, seal: Seal) -> None:
        """Store it. Raises StoreError, StoreFullError."""
        self._records.store.check_writable()
        self._records.write(self._records.meta.put(asdict(seal), _RECORD))
