"""Which incarnation is responsible for the numbers that an ended sink has reported."""

from __future__ import annotations

from speck.model.composition import composition_of_one
from speck.model.ids import sink_client_id
from speck.model.incarnation import EndedSink, Incarnation
from speck.model.job import Job
from speck.model.link import Link
from speck.store.records import Records


class Successors:
    """The newest incarnations of the jobs of ended sinks."""

    def __init__(self, records: Records):
        self._records = records

    def find_newer(self, scope: str, sink: EndedSink) -> Incarnation | None:
        """A newer incarnation that may run with the same sink. It sends again itself."""
        for newest in self._list_newest(scope, sink):
            if not (newest.ended or newest.void) and self._writes_as(newest, sink):
                return newest
        return None

    def use(self, scope: str, sink: EndedSink) -> bool:
        """Whether the newest incarnation of its job is responsible for the number that the sink has
        reported."""
        return any(
            self._writes_as(newest, sink) or sink.client_id in newest.former_sinks_of(sink.link)
            for newest in self._list_newest(scope, sink)
        )

    def sink_of(self, job: Job, link: Link) -> str:
        """The client id under which a job writes to a link."""
        return sink_client_id(self._records.installation, job.job_name, job.source, link)

    def _list_newest(self, scope: str, sink: EndedSink) -> list[Incarnation]:
        """Those of the sink's job, which may have come to another scope since: one that was posted
        alone and is named by a composition, or the other way round."""
        name = sink.incarnation.job.job_name
        owner = self._records.compositions.owner(name)
        scopes = {scope, composition_of_one(name), *([owner] if owner is not None else ())}
        newest = (self._records.incarnations.get(each, name) for each in sorted(scopes))
        return [incarnation for incarnation in newest if incarnation is not None]

    def _writes_as(self, incarnation: Incarnation, sink: EndedSink) -> bool:
        job = incarnation.job
        return sink.link in job.port and self.sink_of(job, sink.link) == sink.client_id
