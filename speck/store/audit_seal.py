"""The seal of the audit log in the store."""

from __future__ import annotations

from speck.store.audit_log import Seal
from speck.store.codec import read_record
from speck.store.records import Records
from speck.store.tables import AUDIT


class StoredSeal:
    """Keeps it in a record that no backup holds: another store has a log of its own."""

    def __init__(self, records: Records):
        self._records = records

    def load(self) -> Seal | None:
        """The seal, once there is one."""
        stored = self._records.store.get(AUDIT)
        return None if stored is None else read_record(AUDIT, stored, Seal)

    def save(self, seal: Seal) -> None:
        """Store it. Raises StoreError, StoreFullError."""
        self._records.store.check_writable()
        self._records.write({AUDIT: seal})
