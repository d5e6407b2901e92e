"""The service's API as Python calls. The CLI reaches the service only through this module.

Every call has a time limit, follows no redirect (a token must not travel to another host) and
ignores proxies of the environment. A request that the service refuses raises a ClientError with
its problems; a service that does not answer raises a NoServerError.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import orjson
import requests

from speck.agent.tls import client_context
from speck.certificates import explain_alert, explain_refusal
from speck.client.bounds import (
    MAX_LIST,
    BoundedAdapter,
    Deadline,
    TooLargeError,
    read_body,
    refuse_compressed,
)
from speck.errors import InvalidError, PermanentError, Problem, TransientError
from speck.model.values import JsonObject

DEFAULT_SERVER = "http://127.0.0.1:8080"
CONNECT_S = 5.0
ANSWER_S = 60.0
"""How long an answer may take, in addition to the time that a call asks the service to wait."""

CALIBRATION_S = 330.0
"""How long a calibration may take at a very slow site; about 20 s are usual."""

_CHUNK = 1 << 20
_LONG_S = 1800.0
"""How long the export or import of a metrics file may take."""
_LEAST_S = 0.05
_RETRIES_S = (0.2, 0.5, 1.0, 2.0)


class NoServerError(TransientError):
    """No service answers at the address; `refused`: nothing listens on the port."""

    def __init__(self, message: str, *, refused: bool = False):
        super().__init__(message)
        self.refused = refused


class NoAnswerInTimeError(NoServerError):
    """The user's time limit ended before the service answered; the service may go on with the
    request."""


class ClientError(PermanentError):
    """The service refused the request; `problems` are the faults that it reported."""

    def __init__(self, message: str, status: int, problems: tuple[Problem, ...] = ()):
        super().__init__(message)
        self.status = status
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Content:
    """A file that the service sends: its size, if the service says it, and its pieces, each read
    when it is asked for."""

    size: int | None
    pieces: Iterator[bytes]

    def __iter__(self) -> Iterator[bytes]:
        return self.pieces


@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files for a service at an https address: the authority that signed its certificate
    (default: REQUESTS_CA_BUNDLE or SSL_CERT_FILE of the environment, else the public ones), and the
    certificate with its key that is presented to it."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class Client:
    """Calls to one service. Close it, or use it in a `with` block."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        answer_s: float = ANSWER_S,
        tls: ClientTls | None = None,
        clean: Callable[[str], str] | None = None,
    ):
        """`clean` is applied to all texts of answers: to what a person reads."""
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(
                f"cannot use {server!r} as the service's address: write http://host:port"
            )
        self.server = server.rstrip("/")
        host = parts.hostname
        self.local = host in ("localhost", "::1") or host.startswith("127.")
        self._answer_s = answer_s
        self._until: float | None = None
        self._clean = clean
        self._deadline = Deadline()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, BoundedAdapter(self._deadline))
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.trust_env = False
        self._own_cert = tls.cert if tls else None
        if parts.scheme == "https":
            self._use(tls or ClientTls())
        elif tls and (tls.ca or tls.cert):
            raise InvalidError(
                f"cannot use --ca or --cert for {server}: it is not encrypted; write https://..."
            )
        self._session.headers["Accept"] = "application/json, application/problem+json"
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise InvalidError("cannot use the token: it must be one line of plain characters")
            self._session.headers["Authorization"] = f"Bearer {token}"

    def _use(self, tls: ClientTls) -> None:
        """Take the files for new connections. Raises PermanentError if they cannot be used."""
        if tls.key is not None and tls.cert is None:
            raise InvalidError(f"cannot use the key {tls.key} without its certificate: add --cert")
        client_context(tls.ca, tls.cert, tls.key)  # here, since its messages say which file it is
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        self._session.verify = str(tls.ca) if tls.ca else bundle or True
        if tls.cert is not None:
            self._session.cert = (str(tls.cert), str(tls.key or tls.cert))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def limit(self, seconds: float | None) -> None:
        """Limit the time of all further calls together; None: no limit."""
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """Whether the time limit has passed."""
        return self._until is not None and time.monotonic() >= self._until

    # -- sites ----------------------------------------------------------------------------

    def sites(self, state: str | None = None) -> list[JsonObject]:
        """All sites."""
        return self._list("/sites", "sites", "name", state=state)

    def site(self, name: str) -> JsonObject:
        """One site."""
        return self._json("GET", f"/sites/{_part(name)}")

    def add_site(self, body: JsonObject) -> tuple[JsonObject, bool]:
        """Register a site; true when it is new."""
        answer = self._call("POST", "/sites", json=body)
        return self._body(answer), answer.status_code == 201

    def put_site(self, name: str, body: JsonObject) -> tuple[JsonObject, bool]:
        """Register or change a site; true when it is new."""
        answer = self._call("PUT", f"/sites/{_part(name)}", json=body)
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
        self._call("DELETE", f"/sites/{_part(name)}")

    def check_site(self, name: str) -> JsonObject:
        """`{name, ok, findings}`."""
        return self._json("GET", f"/sites/{_part(name)}/check")

    def calibrate_site(
        self, name: str, *, busy: bool = False, job_path: str | None = None
    ) -> JsonObject:
        """Measure how fast a site is, and wait: `{cores, pace, unit_s, at, detail}`."""
        body: JsonObject = {"busy": busy, **({"job_path": job_path} if job_path else {})}
        path = f"/sites/{_part(name)}/calibration"
        return self._json("POST", path, json=body, answer_s=CALIBRATION_S)

    # -- jobs -----------------------------------------------------------------------------

    def jobs(self, site: str | None = None, state: str | None = None) -> list[JsonObject]:
        """All jobs, or those of a site or in a state."""
        return self._list("/jobs", "jobs", "job_name", site=site, state=state)

    def job(self, name: str) -> JsonObject:
        """One job."""
        return self._json("GET", f"/jobs/{_part(name)}")

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
        return self._json("GET", f"/jobs/{_part(name)}/metrics")

    def exceptions(self, name: str) -> list[JsonObject]:
        """The job's failures as its engine reports them, newest first."""
        answer = self._json("GET", f"/jobs/{_part(name)}/exceptions")
        exceptions: list[JsonObject] = answer.get("exceptions", [])
        return exceptions

    # -- compositions ---------------------------------------------------------------------

    def compositions(self) -> list[JsonObject]:
        """All compositions."""
        return self._list("/compositions", "compositions", "name")

    def composition(self, name: str) -> JsonObject:
        """`{name, desired, deployed, jobs}`."""
        return self._json("GET", f"/compositions/{_part(name)}")

    def plan(self, name: str) -> JsonObject:
        """The plan from the observed state to the newest revision."""
        return self._json("GET", f"/compositions/{_part(name)}/plan")

    def revisions(self, name: str) -> list[JsonObject]:
        """`{revision, at, by}` of each revision, oldest first."""
        answer = self._json("GET", f"/compositions/{_part(name)}/revisions")
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
            f"/compositions/{_part(name)}/rollback",
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
            f"/compositions/{_part(name)}",
            query={"drop_queues": drop_queues, "drain_limit": drain_limit, "dry_run": dry_run},
            headers={"If-Match": f'"{revision}"'},
        )

    def forget(self, noun: str, name: str, *, force: bool) -> JsonObject:
        """Remove one of `jobs`, `compositions` or `sites` from the store alone: `{kind, name,
        changes, left}`."""
        return self._json("POST", f"/{noun}/{_part(name)}/forget", query={"force": force})

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

    # -- analyses -------------------------------------------------------------------------

    def analyse(self, composition: str | None = None, **options: object) -> JsonObject:
        """Begin an analysis (options: `window_s`, `since`, `until`, `master`, `follow`, `ahead_s`)
        and return its head."""
        values = {"composition": composition, **options}
        body = {name: value for name, value in values.items() if value is not None}
        return self._json("POST", "/analyses", json=body)

    def analysis(self, analysis_id: str) -> JsonObject:
        """An analysis, with its results once it is done."""
        return self._json("GET", f"/analyses/{_part(analysis_id)}")

    def analyses(self, composition: str | None = None) -> list[JsonObject]:
        """Heads of all analyses, newest first."""
        return self._list("/analyses", "analyses", "id", composition=composition)

    def cancel_analysis(self, analysis_id: str) -> JsonObject:
        """Cancel a running analysis."""
        return self._json("DELETE", f"/analyses/{_part(analysis_id)}")

    # -- placements -----------------------------------------------------------------------

    def place(
        self,
        composition: str,
        policy: str,
        analysis: str | None = None,
        limits: Mapping[str, float] | None = None,
        *,
        scale: bool = False,
        all_moves: bool = False,
        move_unmeasured: bool = False,
    ) -> JsonObject:
        """Compute a new placement of the composition, without applying it. `analysis` defaults to
        the newest one; `scale`: choose each job's parallelism, too; `all_moves`: propose moves that
        do not pay for themselves, too; `move_unmeasured`: move jobs that were not measured, too
        (policy all-cloud)."""
        body: JsonObject = {"composition": composition, "policy": policy, "scale": scale}
        body |= {"all_moves": all_moves, "move_unmeasured": move_unmeasured}
        body |= {"analysis": analysis} if analysis else {}
        body |= {"limits": dict(limits)} if limits else {}
        return self._json("POST", "/placements", json=body)

    def advise(self, composition: str, **options: object) -> JsonObject:
        """Advice on a composition (`policy`, `analysis`, `window_s`, `limits`, `scale`)."""
        values = {"composition": composition, **options}
        body = {name: value for name, value in values.items() if value is not None}
        return self._json("POST", "/advice", json=body)

    def apply_placement(
        self, placement_id: str, *, dry_run: bool = False, key: str = ""
    ) -> JsonObject:
        """Make a placement the desired state; see `apply`."""
        return self._json(
            "POST",
            f"/placements/{_part(placement_id)}/apply",
            query={"dry_run": dry_run},
            headers={} if dry_run else {"Idempotency-Key": key},
            again=not dry_run,
        )

    def autopilot(self, composition: str) -> JsonObject:
        """The autopilot's settings for the composition, and the log of its decisions."""
        return self._json("GET", f"/compositions/{_part(composition)}/autopilot")

    def set_autopilot(self, composition: str, settings: JsonObject) -> JsonObject:
        """Switch the autopilot on or off: `{on, every_s, min_gain, policy, settle_s, looks,
        scale, ahead_s}`."""
        return self._json("PUT", f"/compositions/{_part(composition)}/autopilot", json=settings)

    # -- changes, events ------------------------------------------------------------------

    def changes(self, composition: str | None = None) -> list[JsonObject]:
        """Changes, newest first."""
        return self._list("/changes", "changes", "id", composition=composition)

    def change(self, change_id: str) -> JsonObject:
        """One change with its operations."""
        return self._json("GET", f"/changes/{_part(change_id)}")

    def cancel(self, change_id: str) -> JsonObject:
        """Start no further operation of a change."""
        return self._json("POST", f"/changes/{_part(change_id)}/cancel")

    def events(self, after: int = 0, **filters: str | None) -> list[JsonObject]:
        """Events with a number above `after`, oldest first; the filters are site, job_name,
        composition, change and kind."""
        return self._list("/events", "events", "id", after=after, **filters)

    # -- the metrics dataset --------------------------------------------------------------

    def export_metrics(
        self, table: str, form: str, **filters: str | None
    ) -> tuple[int, int, Content]:
        """A table of the metrics as a file: the number of its rows, the number of damaged files in
        the dataset, and its content; the filters are since, until and composition."""
        answer = self._call(
            "GET",
            "/metrics/export",
            query={"table": table, "format": form, **filters},
            answer_s=_LONG_S,
            stream=True,
            headers={"Accept": "*/*"},
        )
        numbers = [answer.headers.get(name, "") for name in ("X-Rows", "X-Damaged")]
        if not all(re.fullmatch(r"[0-9]{1,18}", number) for number in numbers):
            raise self._foreign_error(answer)
        rows, damaged = map(int, numbers)
        return rows, damaged, Content(_size_of(answer), self._content(answer, "export"))

    def import_metrics(
        self,
        file: Path,
        form: str,
        table: str | None = None,
        on_sent: Callable[[int], object] | None = None,
    ) -> JsonObject:
        """Import a file: `{table, rows, new, since, until, ignored, warnings}`. `on_sent` is called
        with the size of each chunk."""
        with file.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            return self._json(
                "POST",
                "/metrics/import",
                query={"format": form, "table": table, "name": file.name},
                data=_Upload(stream, length, on_sent),
                headers={"Content-Type": "application/octet-stream"},
                answer_s=_LONG_S,
            )

    # -- artifacts, tokens, backup --------------------------------------------------------

    def artifacts(self) -> list[JsonObject]:
        """`{sha256, bytes, at, by, uses}` of each artifact."""
        return self._list("/artifacts", "artifacts", "sha256")

    def push(self, sha256: str, jar: Path, on_sent: Callable[[int], object] | None = None) -> bool:
        """Upload a jar; true when it is new. `on_sent` is called with the size of each chunk."""
        with jar.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            answer = self._call(
                "PUT",
                f"/artifacts/{_part(sha256)}",
                data=_Upload(stream, length, on_sent),
                headers={"Content-Type": "application/java-archive"},
            )
        return answer.status_code == 201

    def delete_artifact(self, sha256: str) -> None:
        """Delete an artifact that nothing uses."""
        self._call("DELETE", f"/artifacts/{_part(sha256)}")

    def collect_artifacts(self, *, dry_run: bool = False) -> JsonObject:
        """Delete all artifacts that nothing uses: `{artifacts, kept, uploads}`, `artifacts` that
        were deleted and `kept` ones that are too new, each `{sha256, bytes, at, by}`, and `uploads`
        deleted at engines, `{site, sha256s, error}` each."""
        return self._json("POST", "/artifacts/gc", query={"dry_run": dry_run})

    def tokens(self) -> list[JsonObject]:
        """Each token, without its secret."""
        return self._list("/tokens", "tokens", "name")

    def own_token(self) -> JsonObject:
        """The token of this client: its role, scopes and time of expiry."""
        return self._json("GET", "/tokens/self")

    def add_token(
        self, name: str, role: str, site: str | None = None, **more: object
    ) -> JsonObject:
        """A new token with its secret in `token`; the service never shows that again. `more` are
        `expires_in` and the scopes `compositions`, `topics` and `sites`."""
        fields = {"name": name, "role": role, "site": site, **more}
        body = {key: value for key, value in fields.items() if value is not None}
        return self._json("POST", "/tokens", json=body)

    def rotate_token(self, name: str, expires_in: str | None = None) -> JsonObject:
        """A new secret for a token, in `token`; the old one is valid for ten more minutes."""
        body = {"expires_in": expires_in} if expires_in else {}
        return self._json("POST", f"/tokens/{_part(name)}/rotate", json=body)

    def remove_token(self, name: str, *, leave_open: bool = False) -> None:
        """Revoke a token; the last one only with `leave_open`."""
        self._call("DELETE", f"/tokens/{_part(name)}", query={"open": leave_open})

    def audit(self, limit: int, after: int | None = None) -> list[JsonObject]:
        """The newest lines of the audit log, or those after a number; oldest first."""
        answer = self._json("GET", "/audit", query={"limit": limit, "after": after})
        entries: list[JsonObject] = answer["entries"]
        return entries

    def verify_audit(self, contains: str | None = None) -> JsonObject:
        """Whether the audit log is as the service wrote it: `{ok, lines, first, last_hash,
        faults}`."""
        query = {"contains": contains}
        return self._json("GET", "/audit/verdict", query=query, answer_s=_LONG_S)

    def backup(self) -> Content:
        """A backup of the whole store, for `speck restore`."""
        headers = {"Accept": "*/*"}
        answer = self._call("GET", "/backup", stream=True, headers=headers, answer_s=_LONG_S)
        return Content(_size_of(answer), self._content(answer, "backup"))

    # -- requests -------------------------------------------------------------------------

    def _content(self, answer: requests.Response, what: str) -> Iterator[bytes]:
        try:
            yield from answer.iter_content(_CHUNK)
        except requests.RequestException as error:
            raise TransientError(f"cannot read the whole {what}: {error}; try again") from error

    def _list(self, path: str, noun: str, key: str, **query: Any) -> list[JsonObject]:
        """All items of a list, fetched page by page: `after` is the last item's key."""
        items: list[JsonObject] = []
        size = 0
        while True:
            answer = self._call("GET", path, query=query)
            size += len(answer.content)
            if size > MAX_LIST:
                raise self._too_large_error(f"{path} has more than {MAX_LIST // 2**20} MiB")
            page: list[JsonObject] = self._body(answer)[noun]
            items += page
            if not page or "next" not in answer.links:
                return items
            query["after"] = page[-1][key]

    def _json(self, method: str, path: str, **call: Any) -> JsonObject:
        return self._body(self._call(method, path, **call))

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        again: bool = False,
        answer_s: float | None = None,
        stream: bool = False,
        **call: Any,
    ) -> requests.Response:
        """Send one request; with `again`, repeat it for a while if no answer comes. `answer_s`:
        the time limit of an answer that takes longer than usual. `stream`: do not read the body."""
        params = {k: _word(v) for k, v in (query or {}).items() if v is not None}
        for pause in (*_RETRIES_S, None) if again else (None,):
            limits = self._timeout(max(self._answer_s, answer_s or 0.0))
            self._deadline.until = time.monotonic() + sum(limits)
            try:
                answer = self._session.request(
                    method,
                    self.server + path,
                    params=params,
                    timeout=limits,
                    allow_redirects=False,
                    stream=True,
                    **call,
                )
                refuse_compressed(answer)
                if not stream or not answer.ok:
                    answer._content = read_body(answer)
            except TooLargeError as error:
                answer.close()
                raise self._too_large_error(str(error)) from error
            except requests.RequestException as error:
                if pause is None or self.is_late:
                    raise self._no_answer_error(error) from error
                time.sleep(pause)
                continue
            if not 200 <= answer.status_code < 300:
                raise self._refusal_error(answer)
            return answer
        raise AssertionError("the last attempt returns or raises")

    def _timeout(self, answer_s: float) -> tuple[float, float]:
        """Seconds that connecting and answering may take."""
        if self._until is None:
            return CONNECT_S, answer_s
        remaining_s = max(_LEAST_S, self._until - time.monotonic())
        return min(CONNECT_S, remaining_s), min(answer_s, remaining_s)

    def _no_answer_error(self, error: requests.RequestException) -> NoServerError:
        if self.is_late:
            return NoAnswerInTimeError(
                f"cannot wait for {self.server} any longer: it has not answered within --timeout;"
                " the service may still carry out the request (see `speck status`)"
            )
        if isinstance(error, requests.exceptions.ReadTimeout):
            return NoServerError(
                f"cannot get an answer from speck at {self.server}:"
                f" none came within {self._answer_s:g} s; see the service's log"
            )
        parts = urlsplit(self.server)
        if refusal := explain_refusal(error, parts.hostname or "", parts.port or 443):
            return NoServerError(
                f"cannot trust speck at {self.server}: {refusal} (--ca or SPECK_CA names the file)"
            )
        if alert := explain_alert(error, own=self._own_cert):
            return NoServerError(
                f"cannot reach speck at {self.server}: {alert} (--cert and --key, or SPECK_CERT and"
                " SPECK_KEY)"
            )
        cause = _cause(error)
        refused = isinstance(cause, ConnectionRefusedError)
        reason = getattr(cause, "strerror", None) or str(cause)
        hint = "start it with `speck serve`" if self.local else "is the address right?"
        return NoServerError(
            f"cannot reach speck at {self.server}: {reason}; {hint}", refused=refused
        )

    def _too_large_error(self, why: str) -> ClientError:
        return ClientError(
            f"cannot read the answer of {self.server}: {why}; is it a speck service?", 0
        )

    def _foreign_error(self, answer: requests.Response) -> ClientError:
        return ClientError(
            f"cannot understand the answer of {self.server} (HTTP {answer.status_code}):"
            " is it a speck service? Give its address with --server",
            answer.status_code,
        )

    def _refusal_error(self, answer: requests.Response) -> ClientError:
        status = answer.status_code
        body = _parse(answer)
        if body is None or not ({"title", "detail"} & body.keys()):
            return self._foreign_error(answer)
        message = str(body.get("detail") or body["title"])
        if status == 401:
            message += " (here: by SPECK_TOKEN or --token-file)"
        identity = str(body.get("request_id") or "")
        if status >= 500 and identity not in message:
            message += f" (request {identity})"
        errors = body.get("errors")
        entries = errors if isinstance(errors, list) else []
        problems = [_problem(entry) for entry in entries if isinstance(entry, dict)]
        return ClientError(message, status, tuple(problems))

    def _body(self, answer: requests.Response) -> JsonObject:
        if answer.status_code == 204 or not answer.content:
            return {}
        body = _parse(answer)
        if body is None:
            raise ClientError(
                f"cannot understand the answer to {answer.request.method} {answer.url}:"
                " is it a speck service? Give its address with --server",
                answer.status_code,
            )
        if self._clean is not None:
            cleaned: JsonObject = _clean_all(body, self._clean)
            return cleaned
        return body


class _Upload:
    """A file as a request's body of known length; `on_sent` is called with each chunk's size."""

    def __init__(self, stream: BinaryIO, length: int, on_sent: Callable[[int], object] | None):
        self._stream = stream
        self._length = length
        self._on_sent = on_sent or (lambda _: None)

    def __len__(self) -> int:
        return self._length

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(_CHUNK if size < 0 else size)
        self._on_sent(len(chunk))
        return chunk


def _parse(answer: requests.Response) -> JsonObject | None:
    """The object that is the body; None if it is anything else."""
    try:
        body = orjson.loads(answer.content)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _clean_all(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else clean(value)
    if isinstance(value, dict):
        return {_clean_all(key, clean): _clean_all(each, clean) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean_all(each, clean) for each in value]
    return value


def _part(name: str) -> str:
    """A name as one part of a path; dots alone would be read as folders."""
    if name in ("", ".", ".."):
        raise InvalidError(f"cannot use {name!r} as a name")
    return quote(name, safe="")


def _size_of(answer: requests.Response) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(entry: Mapping[str, Any]) -> Problem:
    line = entry.get("line")
    place, text = str(entry.get("path", "")), str(entry.get("message", ""))
    return Problem(place, text, line if isinstance(line, int) else None)


def _cause(error: BaseException) -> BaseException:
    """The operating system's own error, which requests hides under several wrappers."""
    current: object = error
    for _ in range(10):
        if not isinstance(current, BaseException):
            break
        if isinstance(current, OSError) and not isinstance(current, requests.RequestException):
            return current
        reason = getattr(current, "reason", None)
        inner = [current.__cause__, current.__context__, reason, *current.args]
        current = next((one for one in inner if isinstance(one, BaseException)), None)
    return error
