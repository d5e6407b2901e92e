"""The collector's measurements of jobs, links, engines and brokers, for GET /metrics.

A value that is not known now has no sample: neither zero nor the last value. The lines of a site
are written once for each poll of it: those of ten thousand jobs would take a second otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speck.metrics.latest import LatestSamples
from speck.model.composition import visible_name
from speck.store.records import Records

_JOB_TOTALS = {
    "records_in": "Records that sources received since the tasks started",
    "records_out": "Records that sinks sent since the tasks started",
    "bytes_in": "Bytes of the messages that sources received since the tasks started",
    "bytes_out": "Bytes of the messages that sinks sent since the tasks started",
    "restarts": "Restarts of the job by its engine",
}
_JOB_SHARES = {
    "busy": ("speck_job_busy_ratio", "Share of time in which the busiest subtask worked"),
    "idle": ("speck_job_idle_ratio", "Share of time in which it waited for input"),
    "back_pressured": (
        "speck_job_back_pressured_ratio",
        "Share of time in which it waited for space in its output",
    ),
}
_ENGINE = {
    "cores": ("speck_engine_cores", "Cores that the engine may use"),
    "memory_bytes": ("speck_engine_memory_bytes", "Memory of the engine's workers"),
    "heap_used_bytes": ("speck_engine_heap_used_bytes", "Used heap of the engine's workers"),
}
_BROKER_TOTALS = {
    "messages_in": "Messages that the broker received",
    "messages_out": "Messages that the broker sent",
    "bytes_in": "Bytes that the broker received",
    "bytes_out": "Bytes that the broker sent",
}
_BROKER = {
    "queued": ("speck_broker_queued", "Messages queued for readers"),
    "clients": ("speck_broker_clients", "Connections"),
}


_Lines = dict[str, list[str]]
"""Name of a family -> its lines."""


def _list_families() -> Iterator[tuple[str, str, str]]:
    """(name, type, what it tells) of each, in their order."""
    for name, about in _JOB_TOTALS.items():
        yield f"speck_job_{name}_total", "counter", about
    for name, about in _JOB_SHARES.values():
        yield name, "gauge", about
    yield "speck_link_lag", "gauge", "Messages sent that a reader has not yet received"
    for name, about in _ENGINE.values():
        yield name, "gauge", about
    for name, about in _BROKER_TOTALS.items():
        yield f"speck_broker_{name}_total", "counter", about
    for name, about in _BROKER.values():
        yield name, "gauge", about


_FAMILIES = tuple(_list_families())


@dataclass(frozen=True, slots=True)
class _SiteText:
    """The lines of one site, and the numbers of its changes when they were written."""

    written_at: tuple[int, int]
    lines: _Lines


class SampleText:
    """Writes the newest samples in Prometheus' text format. Call it in one thread at a time."""

    def __init__(self, records: Records, latest: LatestSamples):
        self._records = records
        self._latest = latest
        self._sites: dict[str, _SiteText] = {}

    def write(self) -> str:
        """All families; they are empty when nothing is collected."""
        self._sites = {site: self._write_site(site) for site in self._records.sites.all()}
        parts = []
        for name, kind, about in _FAMILIES:
            parts.append(f"# HELP {name} {about}\n# TYPE {name} {kind}\n")
            for site in self._sites.values():
                parts += site.lines.get(name, ())
        return "".join(parts)

    def _write_site(self, site: str) -> _SiteText:
        newest = self._latest.polled(site), self._records.incarnations.writes_at(site)
        known = self._sites.get(site)
        if known is not None and known.written_at == newest:
            return known
        lines: _Lines = {}
        self._write_jobs(site, lines)
        for row in self._latest.list_links(site):
            if row["role"] == "reader":
                labels = _labels(site=site, topic=row["topic"], reader=row["client_id"])
                _add(lines, "speck_link_lag", labels, row["lag"])
        labels = _labels(site=site)
        engine, broker = self._latest.engine(site), self._latest.broker(site)
        for key, (name, _) in _ENGINE.items():
            _add(lines, name, labels, getattr(engine, key, None))
        for key in _BROKER_TOTALS:
            _add(lines, f"speck_broker_{key}_total", labels, getattr(broker, key, None))
        for key, (name, _) in _BROKER.items():
            _add(lines, name, labels, getattr(broker, key, None))
        return _SiteText(newest, lines)

    def _write_jobs(self, site: str, lines: _Lines) -> None:
        for (scope, name), incarnation in sorted(
            self._records.incarnations.at_engine_of(site).items()
        ):
            if incarnation.ended:
                continue
            rates = self._latest.rate_job(incarnation)
            labels = _labels(composition=visible_name(scope) or "", job=name, site=site)
            for key in _JOB_TOTALS:
                _add(lines, f"speck_job_{key}_total", labels, getattr(rates, key))
            for key, (family, _) in _JOB_SHARES.items():
                _add(lines, family, labels, getattr(rates, key))


def _add(lines: _Lines, family: str, labels: str, value: float | None) -> None:
    if value is not None:
        lines.setdefault(family, []).append(f"{family}{labels} {float(value)!r}\n")


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
