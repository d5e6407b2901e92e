"""Sites: registered, changed, looked at, removed."""

from __future__ import annotations

import threading
from dataclasses import asdict

from speck.binding import BROKERS, ENGINES, kinds
from speck.clock import Clock, rfc3339
from speck.connections import Connections
from speck.errors import ConflictError, InvalidError, Problem, SpeckError
from speck.model import JsonObject, Site
from speck.records import Batch, Records
from speck.service.views import Views


class Sites:
    """The registered sites."""

    def __init__(self, records: Records, connections: Connections, views: Views, clock: Clock):
        self._records = records
        self._connections = connections
        self._views = views
        self._clock = clock
        self._lock = threading.Lock()

    def add(self, site: Site) -> tuple[JsonObject, bool]:
        """Register; false when the same site is there. Raises ConflictError, InvalidError."""
        self._check(site)
        with self._lock:
            known = self._records.sites().get(site.name)
            if known is not None and known != site:
                raise ConflictError(
                    f"cannot register site {site.name!r}: it is there with another body;"
                    f" change it with PUT /sites/{site.name}"
                )
            if known is None:
                self._refuse_foreign_addresses(site)
                self._write(site, f"site {site.name} registered")
        return self.get(site.name), known is None

    def put(self, site: Site) -> tuple[JsonObject, bool]:
        """Register or change; true when it is new. Raises ConflictError while jobs run there
        and an address changes."""
        self._check(site)
        with self._lock:
            known = self._records.sites().get(site.name)
            self._refuse_foreign_addresses(site)
            if known is not None and (known.spe != site.spe or known.broker != site.broker):
                self._refuse_busy(site.name, "change the addresses of")
            self._write(site, f"site {site.name} {'changed' if known else 'registered'}")
        return self.get(site.name), known is None

    def get(self, name: str) -> JsonObject:
        """The Site shape. Raises NotFoundError."""
        site = self._site(name)
        return self._views.site(site, self._views.observation({name}))

    def all(self, state: str | None = None) -> list[JsonObject]:
        """All sites by name."""
        sites = self._records.sites()
        observed = self._views.observation(set(sites))
        shown = [self._views.site(site, observed) for _, site in sorted(sites.items())]
        return [site for site in shown if state is None or site["state"] == state]

    def delete(self, name: str) -> None:
        """Forget the site. Raises NotFoundError; ConflictError while jobs run there."""
        self._site(name)
        self._refuse_busy(name, "remove")
        self._records.write(
            self._records.drop_site(name),
            {f"beat/{name}": None},
            self._records.event("site", f"site {name} removed", site=name),
        )

    def heartbeat(self, name: str, body: JsonObject) -> JsonObject:
        """Note that the site's agent is alive."""
        self._site(name)
        record = {"at": rfc3339(self._clock.now()), "body": body}
        self._records.write({f"beat/{name}": record})
        return {"name": name, "last_seen": record["at"]}

    def check(self, name: str) -> JsonObject:
        """`{name, ok, findings}`: settings that would lose data or starve jobs."""
        self._site(name)
        findings: list[JsonObject] = []
        for part in ("engine", "broker"):
            try:
                binder = getattr(self._connections, part)(name)
                findings += [{"part": part, **asdict(finding)} for finding in binder.check()]
            except SpeckError as error:
                findings.append(
                    {
                        "part": part,
                        "severity": "error",
                        "setting": "address",
                        "found": "no answer",
                        "why": str(error),
                        "mend": f"start the {part}, or give its address with PUT /sites/{name}",
                    }
                )
        ok = all(finding["severity"] != "error" for finding in findings)
        return {"name": name, "ok": ok, "findings": findings}

    def _site(self, name: str) -> Site:
        return self._connections.site(name)

    def _write(self, site: Site, message: str) -> None:
        batches: list[Batch] = [
            self._records.put_site(site),
            self._records.event("site", message, site=site.name),
        ]
        self._records.write(*batches)

    def _check(self, site: Site) -> None:
        problems = []
        for path, kind, group in (
            ("spe.kind", site.spe.kind, ENGINES),
            ("broker.kind", site.broker.kind, BROKERS),
        ):
            if kind not in kinds(group):
                known = ", ".join(kinds(group))
                problems.append(Problem(path, f"no binder for {kind!r}; installed: {known}"))
        if problems:
            raise InvalidError(f"cannot register site {site.name!r}", problems)

    def _refuse_foreign_addresses(self, site: Site) -> None:
        for other in self._records.sites().values():
            if other.name == site.name:
                continue
            for address in {site.spe.address, site.broker.address}:
                if address in (other.spe.address, other.broker.address):
                    raise ConflictError(
                        f"cannot register site {site.name!r}: {address} belongs to {other.name}"
                    )

    def _refuse_busy(self, name: str, verb: str) -> None:
        jobs = sorted(
            job_name
            for (_, job_name), deployed in self._records.all_deployed().items()
            if not deployed.ended
            and name in (deployed.job.site, deployed.job.source_site, deployed.job.sink_site)
        )
        uses = sorted(
            record["job_name"] or record["client_id"]
            for _, record in self._records.store.scan("ses/")
            if record["site"] == name
        )
        if jobs or uses:
            held = ", ".join(dict.fromkeys([*jobs, *uses]))
            raise ConflictError(f"cannot {verb} site {name!r}: it serves {held}; remove them first")
