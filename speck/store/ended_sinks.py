"""Sinks of ended incarnations in the store: they may have to send again."""

from __future__ import annotations

from collections import defaultdict

from speck.model.incarnation import EndedSink
from speck.model.link import Link
from speck.store.scoped_index import Key
from speck.store.tables import Batch, Tables


class EndedSinkRecords:
    """All sinks that have ended. `ended/<scope>/<engine job id>/<client id>`: an incarnation has
    one for each link of its port."""

    def __init__(self, tables: Tables):
        self._by_link: defaultdict[Link, dict[Key, EndedSink]] = defaultdict(dict)
        self._sinks = tables.table("ended", EndedSink, on_write=self._index_sink)

    def all(self) -> list[tuple[str, EndedSink]]:
        """(scope, sink), over all scopes."""
        return [each for link in list(self._by_link) for each in self.on_link(link)]

    def on_link(self, link: Link) -> list[tuple[str, EndedSink]]:
        """(scope, sink) of those of one link."""
        there = self._by_link.get(link, {}).copy()
        return [(scope, sink) for (scope, _), sink in sorted(there.items())]

    def put(self, scope: str, sink: EndedSink) -> Batch:
        return self._sinks.put(sink, scope, sink.incarnation.engine_job_id, sink.client_id)

    def drop(self, scope: str, sink: EndedSink) -> Batch:
        return self._sinks.drop(scope, sink.incarnation.engine_job_id, sink.client_id)

    def drop_at(self, site: str) -> Batch:
        """Delete all that ran at a site: nothing can run there again."""
        batch: Batch = {}
        for scope, sink in self.all():
            batch |= self.drop(scope, sink) if sink.site == site else {}
        return batch

    def _index_sink(self, identity: str, sink: EndedSink | None) -> None:
        scope, _, rest = identity.partition("/")
        if sink is not None:
            self._by_link[sink.link][scope, rest] = sink
            return
        for link in list(self._by_link):
            self._by_link[link].pop((scope, rest), None)
            if not self._by_link[link]:
                del self._by_link[link]
