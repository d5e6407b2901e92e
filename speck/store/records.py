"""The store's records: a repository for each noun; every write is one synced batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from speck.clock import Clock, rfc3339
from speck.errors import ConflictError
from speck.model.artifact import StoredArtifact
from speck.model.incarnation import Inventory
from speck.store.analyses import AnalysisRecords
from speck.store.answers import AnswerRecords
from speck.store.autopilots import AutopilotRecords
from speck.store.changes import ChangeRecords
from speck.store.codec import read_record, to_json
from speck.store.compositions import CompositionRecords
from speck.store.ended_sinks import EndedSinkRecords
from speck.store.events import EventRecords
from speck.store.generations import renew_store, take_location
from speck.store.group_commit import GroupCommit
from speck.store.incarnations import IncarnationRecords
from speck.store.installation import Installation, RestoredState
from speck.store.leveldb import OnFailure, Store
from speck.store.location import StoreLocation
from speck.store.placements import PlacementRecords
from speck.store.retention import Retention
from speck.store.sessions import SessionRecords
from speck.store.sites import SiteRecords
from speck.store.tables import INSTALLATION, RESTORED, Batch, Tables
from speck.store.tokens import TokenRecords


def open_store(path: Path, clock: Clock, on_failure: OnFailure = None) -> Store:
    """Open the store at `path`; at the first start, create it with a new UUID."""
    if Store.exists(path):
        return Store.open(path, on_failure)
    installation = Installation(str(UUID(hex=clock.new_id(), version=4)), 1, rfc3339(clock.now()))
    return Store.create(path, {INSTALLATION: to_json(installation)}, on_failure)


class Records:
    """An open store: its repositories, and the one way to write."""

    def __init__(self, store: Store, clock: Clock):
        self.store = store
        self._clock = clock
        self.tables = tables = Tables(store)
        self._read_meta()
        self.sites = SiteRecords(tables)
        self.compositions = CompositionRecords(tables)
        self.incarnations = IncarnationRecords(tables, self.installation)
        self.sessions = SessionRecords(tables)
        self.ended_sinks = EndedSinkRecords(tables)
        self.changes = ChangeRecords(tables)
        self.events = EventRecords(tables, clock)
        self.answers = AnswerRecords(tables)
        self.tokens = TokenRecords(tables)
        self.artifacts = tables.table("artifact", StoredArtifact)
        """`artifact/<sha256>`; its content is a file in the folder (`speck.store.artifacts`)."""
        self.analyses = AnalysisRecords(tables)
        self.placements = PlacementRecords(tables)
        self.autopilots = AutopilotRecords(tables)
        self._commits = GroupCommit(self._write)
        self._retention = Retention(self.changes, self.events, self.answers, clock)

    @classmethod
    def open(
        cls,
        path: Path,
        clock: Clock,
        *,
        location: Callable[[Path], StoreLocation] | None = None,
        on_failure: OnFailure = None,
    ) -> Records:
        """The records of the store that `open_store` opens. A service that serves it gives
        `location`: a copy then becomes `restored`. `on_failure`: see `Store`."""
        store = open_store(path, clock, on_failure)
        try:
            if location is not None:
                take_location(store, location(path), clock.now())
            return cls(store, clock)
        except BaseException:
            store.close()
            raise

    def _read_meta(self) -> None:
        stored = self.store.get(INSTALLATION)
        assert stored is not None
        installation = read_record(INSTALLATION, stored, Installation)
        self.installation = installation.uuid
        self.generation = installation.generation
        restored = self.store.get(RESTORED)
        self.restored = None if restored is None else read_record(RESTORED, restored, RestoredState)
        """When and why the store may be older than what runs. None once its state has been
        adopted."""

    def begin_generation(self, reason: str) -> None:
        """Become `restored`, for this reason. Only before any change has been taken up."""
        renew_store(self.store, self._clock.now(), reason)
        self._read_meta()

    def refuse_restored(self) -> None:
        """Raises ConflictError while the state of a restored store has not been adopted."""
        if self.restored is not None:
            raise ConflictError(
                f"cannot start a change: the store may be older than what runs, since"
                f" {self.restored.reason}; `speck status` shows what runs, `speck adopt` takes"
                " it over"
            )

    def end_restored(self, *batches: Batch) -> None:
        """Write what was adopted; from now on the service works as usual."""
        self.write(*batches, {RESTORED: None})
        self.restored = None

    def check_readable(self) -> None:
        """Raise StoreError if the store cannot be read."""
        self.store.get(INSTALLATION)

    # -- writing --------------------------------------------------------------------------

    def write(self, *batches: Batch) -> None:
        """Write all batches as one; the events in them are numbered now.

        Writes that come while another one is being synced are combined into the next. Each still
        fails or succeeds on its own.
        """
        self._commits.write({key: record for batch in batches for key, record in batch.items()})

    @property
    def queued(self) -> int:
        """The number of writes that wait for the one that is being synced."""
        return self._commits.queued

    def _write(self, batches: list[Batch]) -> None:
        """Write once, synced."""
        combined = {key: record for batch in batches for key, record in batch.items()}
        numbered = self.events.number(combined)
        superfluous = self._retention.find_superfluous(numbered)
        self.store.write(
            {
                key: None if record is None else to_json(record)
                for key, record in {**numbered, **superfluous}.items()
            }
        )
        self.events.confirm(numbered)
        self.tables.announce(numbered)

    # -- over several nouns ---------------------------------------------------------------

    def inventory(self, scope: str) -> Inventory:
        """What is deployed of a composition, or of a job posted alone."""
        jobs = self.incarnations.of_scope(scope)
        sessions = tuple(self.sessions.of_scope(scope))
        attempts = self.incarnations.attempts_of_scope(scope)
        return Inventory(jobs, sessions, attempts, self.generation)

    def drop_site(self, name: str) -> Batch:
        """Remove a site with all that was reported of it."""
        return self.sites.drop(name) | self.ended_sinks.drop_at(name)
