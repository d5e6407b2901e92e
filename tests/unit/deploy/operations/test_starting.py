"""What a start stores for readers outside speck: the former numbers of its sink."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from speck.binding import Artifact
from speck.deploy.operations import Refills
from speck.deploy.operations.context import Context
from speck.deploy.operations.gathering import Gathering
from speck.deploy.operations.shared_views import SharedViews
from speck.deploy.operations.starting import _record_last_epoch
from speck.errors import UnreachableError
from speck.model.engines import ArtifactKind
from speck.model.incarnation import Incarnation, Session
from speck.model.observation import BrokerView
from speck.service.agents import Agents
from tests.memory_fog import HASTY
from tests.unit.deploy.bench import Bench, RecordingRecords, job

OWED = (("i-B", 7, 20),)


def test_what_other_steps_store_meanwhile_stays(records: RecordingRecords, tmp_path: Path) -> None:
    """One of them leaves the link, another one releases a session there."""
    link = job("A").sink
    kept, released = (Session(name, link, "edge-a", None) for name in ("q-kept", "q-released"))
    records.write(*(records.sessions.put("c", each) for each in (kept, released)))

    def view(site: str, client_ids: Collection[str] | None) -> BrokerView:
        records.write(
            records.sessions.put("c", replace(kept, owed=OWED)),
            records.sessions.drop("c", released.client_id, site),
        )
        raise UnreachableError(f"cannot reach the broker of {site}")

    bench = Bench(tmp_path, records)
    context = Context(
        bench.connections,
        records,
        bench.clock,
        "c",
        lambda sha256: Artifact(sha256, tmp_path / "a.jar", ArtifactKind.JAR),
        HASTY,
        Agents(records, records.sites.all, bench.clock),
        Refills(bench.connections, bench.clock, 0.0),
        bench.resends(),
        SharedViews(view),
        Gathering(lambda site, sinks: None),
    )
    _record_last_epoch(context, Incarnation(job("A"), 1, "x" * 32))
    assert records.sessions.of_scope("c") == [replace(kept, owed=OWED, fed_outside=True)]
