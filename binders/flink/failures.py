"""Translates Flink's error answers into speck's errors, with Flink's own reason.

Flink answers with stack traces. The reason is at their end, below wrappers; only that line goes
into a message.
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

LONGEST_TRACE = 64 * 1024
"""The most characters of a stack trace that are looked at: its beginning and its end."""
LONGEST_REASON = 400
"""The most characters of Flink's reason in a message."""

_EXCEPTION = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$")
_FRAME = re.compile(r"^\s*(?:at \S|\.\.\. \d+ more|\[CIRCULAR)")
_MAIN = "ProgramInvocationException"
_ONLY_SUBMISSION = "The main method caused an error: Failed to execute job"

_NO_JOB = "No jobs included in application"
_NO_STATE = re.compile(r"/(?:chk|savepoint)-|Cannot find checkpoint or savepoint")

_DUPLICATE = re.compile(r"Duplicate(?:Job|Application)SubmissionException")
_JOB_UNKNOWN = re.compile(r"FlinkJobNotFoundException|rest\.NotFoundException: Job \w+ not found")
_JAR_GONE = re.compile(r"Jar file .* does not exist")

# A part of the JobManager does not answer yet, any more, or in time. A request for a job that is
# just ending is answered with a CancellationException.
_PASSING = re.compile(
    r"AskTimeoutException|TimeoutException|RecipientUnreachableException|FencingTokenException"
    r"|EndpointNotStartedException|AkkaRpcException|PekkoRpcException|LeaderRetrievalException"
    r"|java\.util\.concurrent\.CancellationException"
    r"|ongoing leader election|Service temporarily unavailable|Connection refused"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A Flink error answer: its HTTP status, and its `errors` as one text."""

    status: int
    text: str

    @property
    def reason(self) -> str:
        return reason_of(self.text)

    @property
    def job_unknown(self) -> bool:
        """Whether Flink itself reports that it knows no such job (not a proxy's 404)."""
        return _JOB_UNKNOWN.search(self.text) is not None

    @property
    def jar_missing(self) -> bool:
        """Whether the engine no longer has the jar."""
        return _JAR_GONE.search(self.text) is not None

    def error(self, what: str) -> SpeckError:
        """Return the error to raise for a call that should have done `what` ("start job X")."""
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

    The lines of a message are joined by blanks.
    """
    causes: list[tuple[str, str]] = []
    open_message = False
    trace = cut_middle(trace, LONGEST_TRACE)
    for line in trace.splitlines():
        text = line.strip().removeprefix("<Exception on server side:").strip()
        if not text or _FRAME.match(line) or text.startswith("End of exception on server side"):
            open_message = False
        elif (match := _EXCEPTION.match(text)) and (not open_message or "Caused by:" in line):
            causes.append((match[1].rpartition(".")[2], (match[2] or "").strip()))
            open_message = True
        elif open_message:
            name, message = causes[-1]
            causes[-1] = (name, f"{message} {text}".strip())
    return causes


def reason_of(trace: str) -> str:
    """The line of a Flink stack trace that a user needs, at most `LONGEST_REASON` characters.

    This is the innermost cause with a message, preceded by the failure of `main`, if any.
    """
    causes = causes_of(trace)
    with_message = [(name, message) for name, message in causes if message]
    if not with_message:
        lines = trace[:LONGEST_TRACE].splitlines()
        words = next((line.strip() for line in lines if line.strip()), "")
        return _shorten(causes[-1][0] if causes else words or "the engine gave no reason")
    if any(_NO_JOB in message for _, message in with_message):
        return "main returned without calling execute(): it has built no job"
    name, message = with_message[-1]
    if name in ("FileNotFoundException", "NoSuchFileException") and _NO_STATE.search(message):
        return _shorten(
            "the state to resume from no longer exists (set `upgrade: stateless` to start it"
            f" without state, or destroy it and apply again): {message}"
        )
    reason = f"{name}: {message}"
    mains = [text for kind, text in with_message if kind == _MAIN]
    if mains and not mains[-1].startswith(_ONLY_SUBMISSION):
        is_repeated = message in mains[-1]
        reason = f"{_MAIN}: {mains[-1]}" + ("" if is_repeated else f": {reason}")
    return _shorten(reason)


def cut_middle(text: str, longest: int) -> str:
    """The beginning and the end of a text that is longer."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}\n{text[-half:]}"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
