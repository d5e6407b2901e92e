"""Translates Flink's error answers into speck's errors, with Flink's own reason.

Flink answers with stack traces. The reason is at their end, below wrappers; only that line goes
into a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
_PLACE = re.compile(r"at (?:app//|[\w.]*//?)?(\S+\(.*\))")
_FOREIGN = re.compile(r"(?:java|javax|jdk|sun|com\.sun|scala|org\.apache\.flink)\.")
_MAIN = "ProgramInvocationException"
_ONLY_SUBMISSION = "The main method caused an error: Failed to execute job"

_NO_JOB = "No jobs included in application"
_NO_PLAN = "The program plan could not be fetched - the program aborted pre-maturely"
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

_PASSING_FAILURES = frozenset(
    {
        "NoResourceAvailableException",
        "TaskManagerLostException",
        "RemoteTransportException",
        "LocalTransportException",
        "PartitionNotFoundException",
        "PartitionConnectionException",
        "JobMasterException",
        "TimeoutException",
        "SocketTimeoutException",
        "ConnectException",
        "NoRouteToHostException",
        "UnknownHostException",
    }
)
"""Classes of failures that are about the engine's slots and workers, or other servers."""


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

    @property
    def built_nothing(self) -> bool:
        """Whether a `main` that was tried returned as if it had never called execute()."""
        return _NO_PLAN in self.text

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


@dataclass(frozen=True, slots=True)
class Cause:
    """An exception or one of its causes: its class without the package, its message, and the first
    line of code in its trace that is neither Java's nor Flink's (`Filter.map(Filter.java:17)`)."""

    name: str
    message: str
    place: str = ""

    def __str__(self) -> str:
        if self.message:
            return f"{self.name}: {self.message}"
        return f"{self.name} at {self.place}" if self.place else self.name


def list_causes(trace: str) -> list[Cause]:
    """An exception and its causes, outermost first. The lines of a message are joined by blanks."""
    causes: list[Cause] = []
    open_message = False
    trace = cut_middle(trace, LONGEST_TRACE)
    for line in trace.splitlines():
        text = line.strip().removeprefix("<Exception on server side:").strip()
        if not text or _FRAME.match(line) or text.startswith("End of exception on server side"):
            open_message = False
            frame = _PLACE.match(text)
            if frame and causes and not causes[-1].place and not _FOREIGN.match(frame[1]):
                causes[-1] = replace(causes[-1], place=_name_place(frame[1]))
        elif (match := _EXCEPTION.match(text)) and (not open_message or "Caused by:" in line):
            message = (match[2] or "").strip()
            causes.append(Cause(match[1].rpartition(".")[2], "" if message == "null" else message))
            open_message = True
        elif open_message:
            message = f"{causes[-1].message} {text}".strip()
            causes[-1] = replace(causes[-1], message=message)
    return causes


def _name_place(frame: str) -> str:
    """`com.example.Filter.map(Filter.java:17)` without the package."""
    method, _, place = frame.partition("(")
    return ".".join(method.split(".")[-2:]) + f"({place}"


def reason_of(trace: str) -> str:
    """The line of a Flink stack trace that a user needs, at most `LONGEST_REASON` characters.

    This is the innermost cause that says something, preceded by the failure of `main`, if any. An
    exception without a message is named by its class and the first line of the user's own code.
    """
    causes = list_causes(trace)
    if not causes:
        lines = trace[:LONGEST_TRACE].splitlines()
        words = next((line.strip() for line in lines if line.strip()), "")
        return _shorten(words or "the engine gave no reason")
    if any(_NO_JOB in cause.message for cause in causes):
        return "main returned without calling execute(): it has built no job"
    root = _find_root(causes)
    if root.name in ("FileNotFoundException", "NoSuchFileException") and _NO_STATE.search(
        root.message
    ):
        return _shorten(
            "the state to resume from no longer exists (set `upgrade: stateless` to start it"
            f" without state, or destroy it and apply again): {root.message}"
        )
    mains = [cause.message for cause in causes if cause.name == _MAIN and cause.message]
    if not mains or mains[-1].startswith(_ONLY_SUBMISSION) or root.name == _MAIN:
        return _shorten(str(root))
    if not root.message:  # Flink says "caused an error: null"
        return _shorten(f"{_MAIN}: {mains[-1].removesuffix('null')}{root}")
    is_repeated = root.message in mains[-1]
    return _shorten(f"{_MAIN}: {mains[-1]}" + ("" if is_repeated else f": {root}"))


def may_pass(trace: str) -> bool:
    """Whether what made a running job fail may pass by itself: slots or workers that are missing,
    or another server that does not answer."""
    return any(cause.name in _PASSING_FAILURES for cause in list_causes(trace))


def place_of(trace: str) -> str:
    """The class of the innermost cause that says something, and the first line of the user's code
    in its trace; empty if it has none."""
    causes = list_causes(trace)
    root = _find_root(causes) if causes else None
    return f"{root.name} at {root.place}" if root is not None and root.place else ""


def _find_root(causes: list[Cause]) -> Cause:
    """The innermost cause that says something: by a message, or by a place in the user's code. A
    message of user code around one without a message belongs to it."""
    speaking = [cause for cause in causes if cause.message or cause.place]
    if not speaking:
        return causes[-1]
    root, outer = speaking[-1], speaking[-2] if len(speaking) > 1 else None
    if outer is None:
        return root
    if root.name == "ClassNotFoundException" and outer.name == "NoClassDefFoundError":
        return outer
    if not root.message and root.place and outer.message and outer.place and outer.name != _MAIN:
        return replace(outer, message=f"{outer.message}: {root}")
    return root


def cut_middle(text: str, longest: int) -> str:
    """The beginning and the end of a text that is longer."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}\n{text[-half:]}"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
