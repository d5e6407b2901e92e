"""What a Flink answer that is no success means: an error of ours, with Flink's own reason.

Flink tells everything by stack traces. The reason is at their end, below wrappers, and only
that line goes into a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    SpeckError,
    TransientError,
    UnreachableError,
)

LONGEST_REASON = 400
"""Characters of Flink's reason that a message carries at most."""

_EXCEPTION = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$")
_FRAME = re.compile(r"^\s*(?:at \S|\.\.\. \d+ more|\[CIRCULAR)")
_MAIN = "ProgramInvocationException"
_ONLY_SUBMISSION = "The main method caused an error: Failed to execute job"

_NO_JOB = "No jobs included in application"
_NO_STATE = re.compile(r"/(?:chk|savepoint)-|Cannot find checkpoint or savepoint")

_DUPLICATE = re.compile(r"Duplicate(?:Job|Application)SubmissionException")
_JOB_UNKNOWN = re.compile(r"FlinkJobNotFoundException|rest\.NotFoundException: Job \w+ not found")
_JAR_GONE = re.compile(r"Jar file .* does not exist")

# The JobManager's inside does not answer yet, any more, or in time; who asks for a job in the
# moment in which it comes to its end gets a CancellationException.
_PASSING = re.compile(
    r"AskTimeoutException|TimeoutException|RecipientUnreachableException|FencingTokenException"
    r"|EndpointNotStartedException|AkkaRpcException|PekkoRpcException|LeaderRetrievalException"
    r"|java\.util\.concurrent\.CancellationException"
    r"|ongoing leader election|Service temporarily unavailable|Connection refused"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A Flink error answer: HTTP status and everything that its `errors` say, as one text."""

    status: int
    text: str

    @property
    def reason(self) -> str:
        return reason_of(self.text)

    @property
    def job_unknown(self) -> bool:
        """Flink's own word that it knows no such job (not a proxy's 404)."""
        return _JOB_UNKNOWN.search(self.text) is not None

    @property
    def jar_gone(self) -> bool:
        return _JAR_GONE.search(self.text) is not None

    def error(self, what: str) -> SpeckError:
        """The error to raise for a call that should have done `what` ("start job X")."""
        message = f"cannot {what}: {self.reason}"
        if _DUPLICATE.search(self.text):
            return DuplicateJobError(f"cannot {what}: the engine knows this job id already")
        if self.status in (429, 503) or _PASSING.search(self.text):
            return TransientError(message)
        if self.status in (502, 504):
            return UnreachableError(message)
        if "OutOfMemoryError" in self.text:
            return TransientError(f"{message}; give the engine's JVM more memory")
        return EngineRefusedError(message)


def causes_of(trace: str) -> list[tuple[str, str]]:
    """(class without package, message) of an exception and its causes, outermost first.

    A message that goes over several lines is joined by blanks.
    """
    found: list[tuple[str, str]] = []
    open_message = False
    for line in trace.splitlines():
        text = line.strip().removeprefix("<Exception on server side:").strip()
        if not text or _FRAME.match(line) or text.startswith("End of exception on server side"):
            open_message = False
        elif (match := _EXCEPTION.match(text)) and (not open_message or "Caused by:" in line):
            found.append((match[1].rpartition(".")[2], (match[2] or "").strip()))
            open_message = True
        elif open_message:
            name, message = found[-1]
            found[-1] = (name, f"{message} {text}".strip())
    return found


def reason_of(trace: str) -> str:
    """The line of a Flink stack trace that a user needs, at most `LONGEST_REASON` characters.

    The innermost cause that says something; with the failure of `main` before it, if any.
    """
    causes = causes_of(trace)
    telling = [(name, message) for name, message in causes if message]
    if not telling:
        words = next((line.strip() for line in trace.splitlines() if line.strip()), "")
        return _shorten(causes[-1][0] if causes else words or "the engine gave no reason")
    if any(_NO_JOB in message for _, message in telling):
        return "main returned without execute(): it has built no job"
    name, message = telling[-1]
    if name in ("FileNotFoundException", "NoSuchFileException") and _NO_STATE.search(message):
        return _shorten(
            "the state that it is to begin with is gone (set `upgrade: stateless` to start it"
            f" without state, or destroy it and apply again): {message}"
        )
    reason = f"{name}: {message}"
    mains = [text for kind, text in telling if kind == _MAIN]
    if mains and not mains[-1].startswith(_ONLY_SUBMISSION):
        told = message in mains[-1]
        reason = f"{_MAIN}: {mains[-1]}" + ("" if told else f": {reason}")
    return _shorten(reason)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
