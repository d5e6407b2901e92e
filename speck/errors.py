"""The two error roots: transient (worth another try) and permanent (not).

Binders translate what they meet into one of them and chain the cause. Retry is decided by
type in `speck.deploy.execution.retry`, HTTP status by type in `speck.api.problems`; nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class SpeckError(Exception):
    """Anything speck says on purpose; the message begins "cannot ..." and names the thing."""


class TransientError(SpeckError):
    """The same call may succeed later."""


class PermanentError(SpeckError):
    """The same call will fail again."""


class UnreachableError(TransientError):
    """A site's engine or broker does not answer; says nothing about what runs there."""


class EngineRefusedError(PermanentError):
    """The engine answered and refused (HTTP 502 at our own API)."""


class DuplicateJobError(EngineRefusedError):
    """The engine knows this job id already, running or terminal."""


class BrokerRefusedError(PermanentError):
    """The broker answered and refused (bad credentials, unsupported protocol)."""


class NotFoundError(PermanentError):
    """No such site, job, composition, change or artifact (HTTP 404)."""


class ConflictError(PermanentError):
    """The request contradicts what is there (HTTP 409); `change` is one that is in the way."""

    def __init__(self, message: str, *, change: str | None = None):
        super().__init__(message)
        self.change = change


class StaleRevisionError(PermanentError):
    """If-Match named another revision than the newest (HTTP 412)."""


class ForbiddenError(PermanentError):
    """The token's role does not allow this (HTTP 403)."""


class StoreError(PermanentError):
    """The store cannot be opened, read or written."""


class StoreHeldError(StoreError):
    """Another process has the store open."""


class StoreWriteError(StoreError):
    """The disk did not take a write (HTTP 503); what was last written may be there or not.

    The store takes no more until it has been opened again.
    """


class StoreFullError(StoreWriteError):
    """There is no room left on the store's disk (HTTP 507)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in what a user sent: where it is and what is wrong.

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
    """What a site's engine or broker said, with a message that names the site.

    A fault that the binder could not place (PermanentError itself) is the engine's refusal.
    """
    kind = EngineRefusedError if type(error) is PermanentError else type(error)
    answers = (EngineRefusedError, BrokerRefusedError, TransientError)
    if not issubclass(kind, answers) or site in str(error).split():
        return error
    named = kind(f"{error} (site {site})")
    named.__cause__ = error
    return named


class InvalidError(PermanentError):
    """Bad input, with every fault found (HTTP 422, or 400 when it cannot be parsed)."""

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, status: int = 422):
        super().__init__(message)
        self.problems = tuple(problems)
        self.status = status


_FEW = 10


def meant(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a sentence about an unknown word: which one may have been meant, in whatever
    case it is written; else `otherwise`, or what is known."""
    from difflib import get_close_matches

    by_case = {each.lower(): each for each in sorted(known)}
    if near := get_close_matches(word.lower(), by_case, 1, 0.65):
        return f"did you mean {by_case[near[0]]}?"
    if otherwise is not None:
        return otherwise
    more = f", and {len(by_case) - _FEW} more" if len(by_case) > _FEW else ""
    return f"known: {', '.join(list(by_case.values())[:_FEW]) or 'none'}{more}"
