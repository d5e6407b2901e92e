"""The service's API as Python calls. The CLI reaches the service only through this package.

A request that the service refuses raises a ClientError with its problems; a service that does not
answer raises a NoServerError. `transport` sends the requests, `bounds` limits what is read of the
answers; `placement_calls` are those about analyses and placements, `metrics_calls` move metrics,
and `administration_calls` are those about artifacts, tokens, the audit log and backups.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from speck.client.administration_calls import AdministrationCalls
from speck.client.metrics_calls import MetricsCalls
from speck.client.placement_calls import PlacementCalls
from speck.client.transport import (
    ANSWER_S,
    DEFAULT_SERVER,
    ClientError,
    Content,
    NoAnswerInTimeError,
    NoServerError,
    path_part,
)
from speck.model.values import JsonObject

__all__ = [
    "ANSWER_S",
    "DEFAULT_SERVER",
    "Client",
    "ClientError",
    "Content",
    "NoAnswerInTimeError",
    "NoServerError",
]

CALIBRATION_S = 330.0
"""How long a calibration may take at a very slow site; about 20 s are usual."""


class Client(PlacementCalls, MetricsCalls, AdministrationCalls):
    """Calls to one service. Close it, or use it in a `with` block."""

    # -- sites ----------------------------------------------------------------------------

    def sites(self, state: str | None = None, *, fresh: bool = False) -> list[JsonObject]:
        """All sites; `fresh`: once they have been polled."""
        return self._list("/sites", "sites", "name", state=state, fresh=fresh or None)

    def site(self, name: str, *, fresh: bool = False) -> JsonObject:
        """One site; `fresh`: once it has been polled."""
        return self._json("GET", f"/sites/{path_part(name)}", query={"fresh": fresh or None})

    def add_site(self, body: JsonObject) -> tuple[JsonObject, bool]:
        """Register a site; true when it is new."""
        answer = self._call("POST", "/sites", json=body)
        return self._body(answer), answer.status_code == 201

    def put_site(self, name: str, body: JsonObject) -> tuple[JsonObject, bool]:
        """Register or change a site; true when it is new."""
        answer = self._call("PUT", f"/sites/{path_part(name)}", json=body)
        return self._body(answer), answer.status_code == 201

    def put_sites(
        self, bodies: list[JsonObject], *, new_broker: bool = False, new_agent: bool = False
    ) -> list[JsonObject]:
        """Register or change sites together; `new_broker` accepts brokers without the sessions of
        their sites, `new_agent` agents without their states."""
        query = {"new_broker": new_broker or None, "new_agent": new_agent or None}
        answer = self._call("PUT", "/sites", json={"sites": bodies}, query=query)
        sites: list[JsonObject] = self._body(answer)["sites"]
        return sites

    def remove_site(self, name: str) -> None:
        """Forget a site."""
        self._call("DELETE", f"/sites/{path_part(name)}")

    def check_site(self, name: str) -> JsonObject:
        """`{name, ok, findings}`."""
        return self._json("GET", f"/sites/{path_part(name)}/check")

    def calibrate_site(
        self, name: str, *, busy: bool = False, job_path: str | None = None
    ) -> JsonObject:
        """Measure how fast a site is, and wait: `{cores, core_speed, unit_s, at, detail}`."""
        body: JsonObject = {"busy": busy, **({"job_path": job_path} if job_path else {})}
        path = f"/sites/{path_part(name)}/calibration"
        return self._json("POST", path, json=body, answer_s=CALIBRATION_S)

    # -- jobs -----------------------------------------------------------------------------

    def jobs(
        self, site: str | None = None, state: str | None = None, *, fresh: bool = False
    ) -> list[JsonObject]:
        """All jobs, or those of a site or in a state; `fresh`: once their engines have been
        polled."""
        query = {"site": site, "state": state, "fresh": fresh or None}
        return self._list("/jobs", "jobs", "job_name", **query)

    def job(self, name: str, *, fresh: bool = False) -> JsonObject:
        """One job; `fresh`: once its engine has been polled."""
        return self._json("GET", f"/jobs/{path_part(name)}", query={"fresh": fresh or None})

    def rates(self, composition: str | None = None) -> list[JsonObject]:
        """The rates of jobs between the last two samples."""
        return self._list("/rates", "jobs", "job_name", composition=composition)

    def publish(self, site: str, topic: str, records: Sequence[bytes]) -> JsonObject:
        """Publish records to a link: how many were `sent`, and found no reader (`unread`)."""
        encoded = [{"base64": b64encode(record).decode()} for record in records]
        body = {"site": site, "topic": topic, "records": encoded}
        return self._json("POST", "/links/records", json=body)

    def tap(self, site: str, topic: str, most: int, seconds: float) -> JsonObject:
        """The records that are published to a link within `seconds`, up to `most`."""
        query = {"site": site, "topic": topic, "max": most, "seconds": seconds}
        return self._json("GET", "/links/tap", query=query, answer_s=seconds + ANSWER_S)

    def job_metrics(self, name: str) -> JsonObject:
        """The rates of one job between the last two samples."""
        return self._json("GET", f"/jobs/{path_part(name)}/metrics")

    def exceptions(self, name: str) -> list[JsonObject]:
        """The job's failures as its engine reports them, newest first."""
        answer = self._json("GET", f"/jobs/{path_part(name)}/exceptions")
        exceptions: list[JsonObject] = answer.get("exceptions", [])
        return exceptions

    # -- compositions ---------------------------------------------------------------------

    def compositions(self) -> list[JsonObject]:
        """All compositions."""
        return self._list("/compositions", "compositions", "name")

    def composition(self, name: str, *, fresh: bool = False) -> JsonObject:
        """`{name, desired, deployed, jobs}`; `fresh`: once the engines of its jobs have been
        polled."""
        return self._json("GET", f"/compositions/{path_part(name)}", query={"fresh": fresh or None})

    def plan(self, name: str) -> JsonObject:
        """The plan from the observed state to the newest revision."""
        return self._json("GET", f"/compositions/{path_part(name)}/plan")

    def revisions(self, name: str) -> list[JsonObject]:
        """`{revision, at, by}` of each revision, oldest first."""
        answer = self._json("GET", f"/compositions/{path_part(name)}/revisions")
        revisions: list[JsonObject] = answer["revisions"]
        return revisions

    def preview(
        self,
        text: bytes,
        content_type: str,
        *,
        adopt: bool = False,
        drop_queues: bool = False,
        drain_limit: float | None = None,
        force: bool = False,
    ) -> JsonObject:
        """What applying the document would do: `{revision, plan, warnings}`."""
        return self._json(
            "POST",
            "/compositions",
            query={
                "dry_run": True,
                "adopt": adopt,
                "drop_queues": drop_queues,
                "drain_limit": drain_limit,
                "force": force,
            },
            data=text,
            headers={"Content-Type": content_type},
        )

    def apply(
        self,
        text: bytes,
        content_type: str,
        *,
        revision: int,
        key: str,
        adopt: bool = False,
        drop_queues: bool = False,
        drain_limit: float | None = None,
        force: bool = False,
    ) -> JsonObject:
        """Make the document the desired state; `{change, composition, revision, plan}`.

        `revision` is the one that the user has seen (0: none yet). `key` makes the request safe to
        repeat; it is repeated here if no answer comes. `drop_queues` allows queued messages to be
        dropped, those of jobs that run after `drain_limit` seconds. `force` allows the removal of
        more than half of the jobs.
        """
        headers = {
            "Content-Type": content_type,
            "If-Match": f'"{revision}"',
            "Idempotency-Key": key,
        }
        return self._json(
            "POST",
            "/compositions",
            query={
                "adopt": adopt,
                "drop_queues": drop_queues,
                "drain_limit": drain_limit,
                "force": force,
            },
            data=text,
            headers=headers,
            again=True,
        )

    def rollback(
        self,
        name: str,
        to: int,
        *,
        dry_run: bool = False,
        revision: int = 0,
        key: str = "",
        drop_queues: bool = False,
        drain_limit: float | None = None,
        force: bool = False,
    ) -> JsonObject:
        """Apply revision `to` as a new one; see `apply`."""
        headers = {} if dry_run else {"If-Match": f'"{revision}"', "Idempotency-Key": key}
        return self._json(
            "POST",
            f"/compositions/{path_part(name)}/rollback",
            query={
                "dry_run": dry_run,
                "drop_queues": drop_queues,
                "drain_limit": drain_limit,
                "force": force,
            },
            json={"revision": to},
            headers=headers,
            again=not dry_run,
        )

    def destroy(
        self,
        name: str,
        *,
        revision: int,
        drop_queues: bool = False,
        drain_limit: float | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Remove every job of the composition; `revision` is the one that the user has seen.

        `drop_queues` allows queued messages to be dropped, those of jobs that run after
        `drain_limit` seconds.
        """
        return self._json(
            "DELETE",
            f"/compositions/{path_part(name)}",
            query={"drop_queues": drop_queues, "drain_limit": drain_limit, "dry_run": dry_run},
            headers={"If-Match": f'"{revision}"'},
        )

    def forget(self, noun: str, name: str, *, force: bool) -> JsonObject:
        """Remove one of `jobs`, `compositions` or `sites` from the store alone: `{kind, name,
        changes, left}`."""
        return self._json("POST", f"/{noun}/{path_part(name)}/forget", query={"force": force})

    def readiness(self) -> str:
        """`ready`, or `restored` while the service has not adopted what runs since its backup."""
        return str(self._json("GET", "/readyz")["status"])

    def restored(self) -> JsonObject:
        """What a service that was restored from a backup finds: `{state, unknown_jobs, ...}`."""
        return self._json("GET", "/restored")

    def adopt(
        self, *, cancel: bool, older_state: bool, discard_messages: bool = False
    ) -> JsonObject:
        """Let a restored service take over what runs: `{adopted, cancelled, uncertain, ...}`."""
        query = {
            "cancel": cancel,
            "older_state": older_state,
            "discard_messages": discard_messages,
        }
        return self._json("POST", "/restored/adopt", query=query)

    # -- changes, events ------------------------------------------------------------------

    def changes(self, composition: str | None = None) -> list[JsonObject]:
        """Changes, newest first."""
        return self._list("/changes", "changes", "id", composition=composition)

    def change(self, change_id: str) -> JsonObject:
        """One change with its operations."""
        return self._json("GET", f"/changes/{path_part(change_id)}")

    def cancel(self, change_id: str) -> JsonObject:
        """Start no further operation of a change."""
        return self._json("POST", f"/changes/{path_part(change_id)}/cancel")

    def events(self, after: int = 0, **filters: str | None) -> list[JsonObject]:
        """Events with a number above `after`, oldest first; the filters are site, job_name,
        composition, change and kind."""
        return self._list("/events", "events", "id", after=after, **filters)
