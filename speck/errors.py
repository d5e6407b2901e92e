"""The two error roots: transient (a retry may help) and permanent (it will not).

Binders translate every fault into one of them and chain the cause. The type decides about retries
in `speck.deploy.execution.retry` and about the HTTP status in `speck.api.problems`, only there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice


class SpeckError(Exception):
    """The base of all errors that speck raises; messages begin "cannot ..." and name the thing."""


class TransientError(SpeckError):
    """The same call may succeed later."""


class PermanentError(SpeckError):
    """The same call will fail again."""


class UnreachableError(TransientError):
    """A site's engine or broker does not answer. This says nothing about the jobs there."""


class EngineRefusedError(PermanentError):
    """The engine answered and refused the request (HTTP 502 at our own API)."""


class DuplicateJobError(EngineRefusedError):
    """The engine already knows this job id, running or ended."""


class MainTimeoutError(EngineRefusedError):
    """The engine answers, but the job's `main`, which it was to run, has not returned in time. It
    cannot be aborted, and may still start the job."""


class BrokerRefusedError(PermanentError):
    """The broker answered and refused the request (bad credentials, unsupported protocol)."""


class NotFoundError(PermanentError):
    """No such site, job, composition, change or artifact (HTTP 404)."""


class ConflictError(PermanentError):
    """The request conflicts with the current state (HTTP 409); `change` is the id of a change that
    prevents it, if any."""

    def __init__(self, message: str, *, change: str | None = None):
        super().__init__(message)
        self.change = change


class QueuesError(ConflictError):
    """The request would drop queues, and does not allow that (HTTP 409). `queues` are they, as
    records that the API shows; the message holds one line for each."""

    def __init__(self, message: str, queues: Sequence[object]):
        super().__init__(message)
        self.queues = tuple(queues)


class StaleRevisionError(PermanentError):
    """If-Match names a revision that is not the newest (HTTP 412)."""


class ForbiddenError(PermanentError):
    """The token's role or its scopes do not allow this (HTTP 403); `problems` name what lies
    outside the scopes."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()):
        super().__init__(message)
        self.problems = tuple(problems)


class UnauthorizedError(PermanentError):
    """The token is missing, unknown or has expired (HTTP 401)."""


class StoreError(PermanentError):
    """The store cannot be opened, read or written. `public` says so to those who need not know
    where it is."""

    public = "the store cannot be read or written; see the service's log"


class StoreHeldError(StoreError):
    """Another process has the store open."""


class StoreClosedError(StoreError):
    """The store was closed while it was in use (HTTP 503): the service is stopping."""

    public = "the service is stopping"


class StoreWriteError(StoreError):
    """The disk refused a write (HTTP 503); the last write may or may not have been stored.

    The store refuses all further writes until it is opened again.
    """


class StoreFullError(StoreWriteError):
    """The store's disk is full (HTTP 507)."""

    public = (
        "the store's disk is full: free space on it, then speck goes on by itself;"
        " the service's log says where it is"
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a user's input: its place and what is wrong.

    `path` is like `jobs[2].sink_topic` ("" for the whole document); `line` is 1-based and
    known for YAML only.
    """

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.path or "document"
        at = f" (line {self.line})" if self.line is not None else ""
        return f"{place}{at}: {self.message}"


def at_site(error: SpeckError, site: str) -> SpeckError:
    """Return an error of a site's engine or broker with a message that names the site.

    A plain PermanentError, which the binder did not classify, becomes an EngineRefusedError.
    """
    kind = EngineRefusedError if type(error) is PermanentError else type(error)
    answers = (EngineRefusedError, BrokerRefusedError, TransientError)
    if not issubclass(kind, answers) or site in str(error).split():
        return error
    error_at_site = kind(f"{error} (site {site})")
    error_at_site.__cause__ = error
    return error_at_site


class InvalidError(PermanentError):
    """Invalid input, with all its faults (HTTP 422, or 400 when it cannot be parsed)."""

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, status: int = 422):
        super().__init__(message)
        self.problems = tuple(problems)
        self.status = status


MOST_PROBLEMS = 100
"""So many faults of a document are reported; one with more is no honest mistake."""

_FEW = 10
_MOST_COMPARED = 500
_LONGEST_COMPARED = 64


def find_similar(word: str, known: Iterable[str], most: int, least: float) -> list[str]:
    """The known words that are most like `word`, by a similarity of at least `least` (0 to 1).

    Comparing takes time that grows with the square of the length: long words have none that are
    like them, long known words are left out, and so is what comes after the first 500."""
    from difflib import get_close_matches

    if len(word) > _LONGEST_COMPARED:
        return []
    short = (each for each in known if len(each) <= _LONGEST_COMPARED)
    return get_close_matches(word, list(islice(short, _MOST_COMPARED)), most, least)


def suggest(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of a sentence about an unknown word: the known word that is most like it,
    ignoring case; if none is, `otherwise` or a list of the known words."""
    by_case = {each.lower(): each for each in sorted(known)}
    if near := find_similar(word.lower(), by_case, 1, 0.65):
        return f"did you mean {by_case[near[0]]}?"
    if otherwise is not None:
        return otherwise
    more = f", and {len(by_case) - _FEW} more" if len(by_case) > _FEW else ""
    return f"known: {', '.join(list(by_case.values())[:_FEW]) or 'none'}{more}"
