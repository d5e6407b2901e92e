"""The type of the records of each table, and of each record that is alone.

What judges records without opening a store follows from it: the check of a backup, and the test
that lets no type change without a new version of the store (`speck.store.leveldb.VERSION`).
"""

from __future__ import annotations

from collections.abc import Mapping

from speck.model.analysis import AnalysisHead
from speck.model.artifact import StoredArtifact
from speck.model.change import ChangeHead
from speck.model.composition import Head, Revision
from speck.model.event import Event
from speck.model.incarnation import EndedSink, Incarnation, Session
from speck.model.plan_outline import OperationOutcome
from speck.model.site import Calibration, Site
from speck.model.token import StoredToken
from speck.placement.record import PlacementRecord
from speck.store.answers import FirstAnswer
from speck.store.audit_log import Seal
from speck.store.autopilots import AutopilotLog, AutopilotRecord
from speck.store.changes import EndingMark
from speck.store.compositions import BrokenRequirements, JobOwner
from speck.store.incarnations import Attempts
from speck.store.installation import Installation, RestoredState
from speck.store.link_index import StoredLinks
from speck.store.location import StoreLocation
from speck.store.sessions import KeptSession, SeenPosition
from speck.store.sites import SiteIdentity, StoredReport
from speck.store.tables import AUDIT, INSTALLATION, LOCATION, RESTORED

TABLES: Mapping[str, type[object]] = {
    "agentid": SiteIdentity,
    "analysis": AnalysisHead,
    "artifact": StoredArtifact,
    "att": Attempts,
    "beat": StoredReport,
    "brokerid": SiteIdentity,
    "calibration": Calibration,
    "change": ChangeHead,
    "ended": EndedSink,
    "ending": EndingMark,
    "event": Event,
    "head": Head,
    "idem": FirstAnswer,
    "inv": Incarnation,
    "kept": KeptSession,
    "links": StoredLinks,
    "op": OperationOutcome,
    "own": JobOwner,
    "pilot": AutopilotRecord,
    "pilotlog": AutopilotLog,
    "placement": PlacementRecord,
    "required": BrokenRequirements,
    "rev": Revision,
    "seen": SeenPosition,
    "ses": Session,
    "site": Site,
    "token": StoredToken,
}
"""By noun, what the keys of a table begin with."""

_ALONE: Mapping[str, type[object]] = {
    AUDIT: Seal,
    INSTALLATION: Installation,
    LOCATION: StoreLocation,
    RESTORED: RestoredState,
}
"""By key."""


def type_at(key: str) -> type[object] | None:
    """The type of the record at a key; None if it belongs to no table."""
    return _ALONE.get(key) or TABLES.get(key.partition("/")[0])


def all_types() -> Mapping[str, type[object]]:
    """The types of all records by noun or key."""
    return {**TABLES, **_ALONE}
