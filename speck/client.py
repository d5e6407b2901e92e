"""The service's API as Python calls; all that the CLI knows of the service.

Every call has a time limit, follows no redirect (a token must not travel to another host) and
ignores proxies of the environment. What the service refuses comes back as a ClientError with
its problems; a service that does not answer is a NoServerError.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import requests

from speck.errors import InvalidError, PermanentError, Problem, TransientError
from speck.model.values import JsonObject

DEFAULT_SERVER = "http://127.0.0.1:8080"
CONNECT_S = 5.0
ANSWER_S = 60.0
"""How long an answer may take beyond what the call itself asks the service to wait."""

CALIBRATION_S = 330.0
"""How long a calibration may take at a very slow site; some 20 s are usual."""

_CHUNK = 1 << 20
_LONG_S = 1800.0
"""How long a file of metrics may take to be made or taken over."""
_LEAST_S = 0.05
_RETRIES_S = (0.2, 0.5, 1.0, 2.0)


class NoServerError(TransientError):
    """No service answers at the address; `refused`: because nobody listens there."""

    def __init__(self, message: str, *, refused: bool = False):
        super().__init__(message)
        self.refused = refused


class NoAnswerInTimeError(NoServerError):
    """The user's own time limit ended before the service answered; what was asked for goes on."""


class ClientError(PermanentError):
    """The service refused; `problems` says where and why as far as it told."""

    def __init__(self, message: str, status: int, problems: tuple[Problem, ...] = ()):
        super().__init__(message)
        self.status = status
        self.problems = problems


class Client:
    """Calls to one service. Close it, or use it in a `with` block."""

    def __init__(
        self, server: str = DEFAULT_SERVER, token: str | None = None, answer_s: float = ANSWER_S
    ):
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
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Accept"] = "application/json, application/problem+json"
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise InvalidError("cannot use the token: it must be one line of plain characters")
            self._session.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self._session.close()

    def limit(self, seconds: float | None) -> None:
        """From now on all calls together may take so long; None: no limit."""
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """Whether that time is over."""
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
        return _body(answer), answer.status_code == 201

    def put_site(self, name: str, body: JsonObject) -> tuple[JsonObject, bool]:
        """Register or change a site; true when it is new."""
        answer = self._call("PUT", f"/sites/{_part(name)}", json=body)
        return _body(answer), answer.status_code == 201

    def remove_site(self, name: str) -> None:
        """Forget a site."""
        self._call("DELETE", f"/sites/{_part(name)}")

    def check_site(self, name: str) -> JsonObject:
        """`{name, ok, findings}`."""
        return self._json("GET", f"/sites/{_part(name)}/check")

    def calibrate_site(
        self, name: str, *, busy: bool = False, job_path: str | None = None
    ) -> JsonObject:
        """Measure how fast a site is: `{cores, pace, unit_s, at, detail}`. Waits for it."""
        body: JsonObject = {"busy": busy, **({"job_path": job_path} if job_path else {})}
        path = f"/sites/{_part(name)}/calibration"
        return self._json("POST", path, json=body, answer_s=CALIBRATION_S)

    # -- jobs -----------------------------------------------------------------------------

    def jobs(self, site: str | None = None, state: str | None = None) -> list[JsonObject]:
        """All jobs; filtered."""
        return self._list("/jobs", "jobs", "job_name", site=site, state=state)

    def job(self, name: str) -> JsonObject:
        """One job."""
        return self._json("GET", f"/jobs/{_part(name)}")

    def rates(self, composition: str | None = None) -> list[JsonObject]:
        """What jobs did between the last two looks of the collector."""
        return self._list("/rates", "jobs", "job_name", composition=composition)

    def job_metrics(self, name: str) -> JsonObject:
        """What one job did between the last two looks of the collector."""
        return self._json("GET", f"/jobs/{_part(name)}/metrics")

    def exceptions(self, name: str) -> list[JsonObject]:
        """What the engine says of the job's failures, newest first."""
        answer = self._json("GET", f"/jobs/{_part(name)}/exceptions")
        found: list[JsonObject] = answer.get("exceptions", [])
        return found

    # -- compositions ---------------------------------------------------------------------

    def compositions(self) -> list[JsonObject]:
        """All compositions."""
        return self._list("/compositions", "compositions", "name")

    def composition(self, name: str) -> JsonObject:
        """`{name, desired, deployed, jobs}`."""
        return self._json("GET", f"/compositions/{_part(name)}")

    def plan(self, name: str) -> JsonObject:
        """The plan from what is there to the newest revision."""
        return self._json("GET", f"/compositions/{_part(name)}/plan")

    def revisions(self, name: str) -> list[JsonObject]:
        """`{revision, at, by}` of each revision, oldest first."""
        answer = self._json("GET", f"/compositions/{_part(name)}/revisions")
        found: list[JsonObject] = answer["revisions"]
        return found

    def preview(
        self,
        text: bytes,
        content_type: str,
        *,
        adopt: bool = False,
        drain: bool = True,
        force: bool = False,
    ) -> JsonObject:
        """What applying the document would do: `{revision, plan, warnings}`."""
        return self._json(
            "POST",
            "/compositions",
            query={"dry_run": True, "adopt": adopt, "drain": drain, "force": force},
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
        drain: bool = True,
        force: bool = False,
    ) -> JsonObject:
        """Make the document the desired state; `{change, composition, revision, plan}`.

        `revision` is the one that the user has seen (0: none yet); `key` makes it safe to send
        again after a lost answer, which is done here. Without `drain` what is queued on links
        whose readers leave is abandoned; `force` lets more than half of the jobs be removed.
        """
        headers = {
            "Content-Type": content_type,
            "If-Match": f'"{revision}"',
            "Idempotency-Key": key,
        }
        return self._json(
            "POST",
            "/compositions",
            query={"adopt": adopt, "drain": drain, "force": force},
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
        drain: bool = True,
        force: bool = False,
    ) -> JsonObject:
        """Apply revision `to` as a new one; see `apply`."""
        headers = {} if dry_run else {"If-Match": f'"{revision}"', "Idempotency-Key": key}
        return self._json(
            "POST",
            f"/compositions/{_part(name)}/rollback",
            query={"dry_run": dry_run, "drain": drain, "force": force},
            json={"revision": to},
            headers=headers,
            again=not dry_run,
        )

    def destroy(self, name: str, *, revision: int, drain: bool = True) -> JsonObject:
        """Remove every job of the composition, of which the user has seen `revision`.

        Without `drain` what is queued between the jobs is abandoned.
        """
        return self._json(
            "DELETE",
            f"/compositions/{_part(name)}",
            query={"drain": drain},
            headers={"If-Match": f'"{revision}"'},
        )

    # -- analyses -------------------------------------------------------------------------

    def analyse(self, composition: str | None = None, **asked: object) -> JsonObject:
        """Begin an analysis (`window_s`, `since`, `until`, `master`, `follow`): its head."""
        body = {"composition": composition, **asked}
        told = {name: value for name, value in body.items() if value is not None}
        return self._json("POST", "/analyses", json=told)

    def analysis(self, analysis_id: str) -> JsonObject:
        """An analysis, with what it says once it is done."""
        return self._json("GET", f"/analyses/{_part(analysis_id)}")

    def analyses(self, composition: str | None = None) -> list[JsonObject]:
        """Heads of all analyses, newest first."""
        return self._list("/analyses", "analyses", "id", composition=composition)

    def cancel_analysis(self, analysis_id: str) -> JsonObject:
        """End an analysis that runs."""
        return self._json("DELETE", f"/analyses/{_part(analysis_id)}")

    # -- placements -----------------------------------------------------------------------

    def place(
        self,
        composition: str,
        policy: str,
        analysis: str | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> JsonObject:
        """A new placement of the composition; nothing is changed. `analysis`: the newest."""
        body: JsonObject = {"composition": composition, "policy": policy}
        body |= {"analysis": analysis} if analysis else {}
        body |= {"limits": dict(limits)} if limits else {}
        return self._json("POST", "/placements", json=body)

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
        """Whether the composition's placement is changed by itself, and the log of why."""
        return self._json("GET", f"/compositions/{_part(composition)}/autopilot")

    def set_autopilot(self, composition: str, settings: JsonObject) -> JsonObject:
        """Switch it on or off: `{on, every_s, min_gain, policy, settle_s, looks}`."""
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

    def events(self, after: int = 0, **about: str | None) -> list[JsonObject]:
        """Events with a number above `after`, oldest first; `about` holds site, job_name,
        composition, change, kind."""
        return self._list("/events", "events", "id", after=after, **about)

    # -- the metrics dataset --------------------------------------------------------------

    def export_metrics(
        self, table: str, form: str, **wanted: str | None
    ) -> tuple[int, int, Iterator[bytes]]:
        """A table of the metrics as a file: its rows, how many files of the dataset are damaged,
        and its content; `wanted` holds since, until, composition."""
        answer = self._call(
            "GET",
            "/metrics/export",
            query={"table": table, "format": form, **wanted},
            answer_s=_LONG_S,
            stream=True,
            headers={"Accept": "*/*"},
        )
        rows, damaged = (int(answer.headers[name]) for name in ("X-Rows", "X-Damaged"))
        return rows, damaged, self._content(answer, "export")

    def import_metrics(
        self,
        file: Path,
        form: str,
        table: str | None = None,
        sent: Callable[[int], object] | None = None,
    ) -> JsonObject:
        """Take over a file: `{table, rows, new, since, until, ignored, warnings}`."""
        with file.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            return self._json(
                "POST",
                "/metrics/import",
                query={"format": form, "table": table, "name": file.name},
                data=_Upload(stream, length, sent),
                headers={"Content-Type": "application/octet-stream"},
                answer_s=_LONG_S,
            )

    # -- artifacts, tokens, backup --------------------------------------------------------

    def artifacts(self) -> list[JsonObject]:
        """`{sha256, bytes, at}` of each artifact."""
        return self._list("/artifacts", "artifacts", "sha256")

    def push(self, sha256: str, jar: Path, sent: Callable[[int], object] | None = None) -> bool:
        """Send a jar; true when it is new. `sent` is told the bytes of each piece."""
        with jar.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            answer = self._call(
                "PUT",
                f"/artifacts/{_part(sha256)}",
                data=_Upload(stream, length, sent),
                headers={"Content-Type": "application/java-archive"},
            )
        return answer.status_code == 201

    def tokens(self) -> list[JsonObject]:
        """`{name, role, site, at}` of each token."""
        return self._list("/tokens", "tokens", "name")

    def add_token(self, name: str, role: str, site: str | None = None) -> JsonObject:
        """A new token: `{name, role, token}`; its secret is shown this once."""
        body = {"name": name, "role": role, **({"site": site} if site else {})}
        return self._json("POST", "/tokens", json=body)

    def remove_token(self, name: str) -> None:
        """Refuse a token from now on."""
        self._call("DELETE", f"/tokens/{_part(name)}")

    def backup(self) -> Iterator[bytes]:
        """The whole store, as `speck restore` reads it."""
        answer = self._call("GET", "/backup", stream=True, headers={"Accept": "*/*"})
        yield from self._content(answer, "backup")

    # -- how ------------------------------------------------------------------------------

    def _content(self, answer: requests.Response, what: str) -> Iterator[bytes]:
        try:
            yield from answer.iter_content(_CHUNK)
        except requests.RequestException as error:
            raise TransientError(f"cannot read the whole {what}: {error}; try again") from error

    def _list(self, path: str, noun: str, key: str, **query: Any) -> list[JsonObject]:
        """Every item, page by page: `after` is the last item's key."""
        found: list[JsonObject] = []
        while True:
            answer = self._call("GET", path, query=query)
            page: list[JsonObject] = _body(answer)[noun]
            found += page
            if not page or "next" not in answer.links:
                return found
            query["after"] = page[-1][key]

    def _json(self, method: str, path: str, **call: Any) -> JsonObject:
        return _body(self._call(method, path, **call))

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        again: bool = False,
        answer_s: float | None = None,
        **call: Any,
    ) -> requests.Response:
        """One request; with `again`, repeated for a while when no answer comes. `answer_s`: for
        an answer that takes longer than others."""
        params = {k: _word(v) for k, v in (query or {}).items() if v is not None}
        for pause in (*_RETRIES_S, None) if again else (None,):
            try:
                answer = self._session.request(
                    method,
                    self.server + path,
                    params=params,
                    timeout=self._timeout(max(self._answer_s, answer_s or 0.0)),
                    allow_redirects=False,
                    **call,
                )
            except requests.RequestException as error:
                if pause is None or self.is_late:
                    raise self._silent(error) from error
                time.sleep(pause)
                continue
            if not 200 <= answer.status_code < 300:
                raise self._refused(answer)
            return answer
        raise AssertionError("the last try returns or raises")

    def _timeout(self, answer_s: float) -> tuple[float, float]:
        """How long connecting and answering may take."""
        if self._until is None:
            return CONNECT_S, answer_s
        left = max(_LEAST_S, self._until - time.monotonic())
        return min(CONNECT_S, left), min(answer_s, left)

    def _silent(self, error: requests.RequestException) -> NoServerError:
        if self.is_late:
            return NoAnswerInTimeError(
                f"cannot wait for {self.server} any longer: it has not answered within --timeout;"
                " what was asked for may go on (see `speck status`)"
            )
        if isinstance(error, requests.exceptions.ReadTimeout):
            return NoServerError(
                f"cannot get an answer from speck at {self.server}:"
                f" none came within {self._answer_s:g} s; look at its log"
            )
        cause = _cause(error)
        refused = isinstance(cause, ConnectionRefusedError)
        told = getattr(cause, "strerror", None) or str(cause)
        mend = "start it with `speck serve`" if self.local else "is the address right?"
        return NoServerError(
            f"cannot reach speck at {self.server}: {told}; {mend}", refused=refused
        )

    def _refused(self, answer: requests.Response) -> ClientError:
        status = answer.status_code
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict) or not ({"title", "detail"} & body.keys()):
            return ClientError(
                f"cannot understand the answer of {self.server} (HTTP {status}):"
                " is it a speck service? Give its address with --server",
                status,
            )
        message = str(body.get("detail") or body["title"])
        if status == 401:
            message += " (here: by SPECK_TOKEN or --token-file)"
        identity = str(body.get("request_id") or "")
        if status >= 500 and identity not in message:
            message += f" (request {identity})"
        return ClientError(message, status, tuple(map(_problem, body.get("errors") or ())))


class _Upload:
    """A file as a request's body of known length, telling how much of it was sent."""

    def __init__(self, stream: BinaryIO, length: int, sent: Callable[[int], object] | None):
        self._stream = stream
        self._left = length
        self._sent = sent or (lambda _: None)

    def __len__(self) -> int:
        return self._left

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(_CHUNK if size < 0 else size)
        self._sent(len(chunk))
        return chunk


def _body(answer: requests.Response) -> JsonObject:
    if answer.status_code == 204 or not answer.content:
        return {}
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ClientError(
            f"cannot understand the answer to {answer.request.method} {answer.url}:"
            " is it a speck service? Give its address with --server",
            answer.status_code,
        )
    return body


def _part(name: str) -> str:
    """A name as one part of a path; dots alone would be taken for folders."""
    if name in ("", ".", ".."):
        raise InvalidError(f"cannot use {name!r} as a name")
    return quote(name, safe="")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(told: Mapping[str, Any]) -> Problem:
    return Problem(str(told.get("path", "")), str(told.get("message", "")), told.get("line"))


def _cause(error: BaseException) -> BaseException:
    """The operating system's own error, which requests hides under several wrappers."""
    seen: object = error
    for _ in range(10):
        if not isinstance(seen, BaseException):
            break
        if isinstance(seen, OSError) and not isinstance(seen, requests.RequestException):
            return seen
        inner = [seen.__cause__, seen.__context__, getattr(seen, "reason", None), *seen.args]
        seen = next((one for one in inner if isinstance(one, BaseException)), None)
    return error
