"""Why a query has failed, in one line that its users understand.

Spark's exceptions begin with general words, end in frames of Java or in a plan, and hold what
matters in a cause far below. What does not fit a checkpoint is said in our own words.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
    Py4JNetworkError,
)
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

_MOST_CAUSES = 20
_GONE = (
    "cannot go on: the JVM of Spark has ended; if its log says OutOfMemoryError, give the job more"
    " memory with memory_mb"
)
_REST = re.compile(r"\n\s+at |\n=== Streaming Query ===")
_OWN = re.compile(r"(?:^|: )(cannot .+)")
_TRACEBACK = "Traceback (most recent call last)"
_GENERAL = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ")
_STATE = re.compile(r"\s+SQLSTATE: \w{5}\b")
_OPERATORS = re.compile(
    r"Stateful operators in the metadata: \[(.*?)\]; Stateful operators in current batch: \[(.*?)\]"
)
_NEW_OPERATORS = re.compile(
    r"state directory is empty or missing\.\s+Stateful operators in current batch: \[(.*?)\]"
)
_SCHEMA = re.compile(
    r"Existing (key|value)_schema=(StructType\(.*?\)) and new"
    r" (?:key|value)_schema=(StructType\(.*?)\.\s+If you want"
)
_SOURCES = re.compile(
    r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]"
)


@contextmanager
def explaining() -> Iterator[None]:
    """End the program if Spark fails, with status 1; the last line of its log says why."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        traceback.print_exc()
        raise SystemExit(explain(list_messages(error))) from error


def list_messages(error: BaseException) -> list[str]:
    """What an exception and its causes say, the outermost first; empty: there is no JVM that could
    say it."""
    messages: list[str] = []
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return messages
    each: Any = error.java_exception if isinstance(error, Py4JJavaError) else error
    with suppress(Py4JError, ConnectionError):
        while each is not None and len(messages) < _MOST_CAUSES:
            if isinstance(each, JavaObject):
                messages.append(each.getMessage() or each.toString())
                each = each.getCause()
            elif isinstance(each, CapturedException):
                messages.append(each._desc)
                each = each._cause
            else:
                messages.append(str(each))
                each = each.__cause__
    return messages


def explain(messages: Sequence[str]) -> str:
    """One line that begins with "cannot"."""
    if not messages:
        return _GONE
    if (change := _find_change("\n".join(messages))) is not None:
        return (
            f"cannot go on from its checkpoint: the program has changed: {change}; go back to the"
            " former program, or let the job begin anew with upgrade: stateless"
        )
    lines = [line for line in map(_pick_line, messages) if line]
    for line in lines:
        if own := _OWN.search(line):
            return own[1]
    return f"cannot go on: {lines[-1] if lines else 'Spark does not say why'}"


def _pick_line(message: str) -> str:
    """Its first line, or the last one of a traceback of Python."""
    text = _STATE.sub("", _REST.split(message, maxsplit=1)[0])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[-1 if _TRACEBACK in text else 0] if lines else ""
    return _GENERAL.sub("", line).strip()


def _find_change(text: str) -> str | None:
    if match := _OPERATORS.search(text):
        return f"its operators with state were {_name(match[1])} and are {_name(match[2])}"
    if match := _NEW_OPERATORS.search(text):
        return f"it had no operators with state, and has {_name(match[1])}"
    if match := _SCHEMA.search(text):
        return f"the {match[1]} of its state was {_shape(match[2])} and is {_shape(match[3])}"
    if match := _SOURCES.search(text):
        return f"it had {match[1]} sources, and has {match[2]}"
    return None


def _name(operators: str) -> str:
    return ", ".join(re.findall(r"OperatorName: (\w+)", operators)) or operators or "none"


def _shape(schema: str) -> str:
    fields = re.findall(r"StructField\(([^,]+),(\w+?)(?:Type)?[,(]", schema)
    return "(" + ", ".join(f"{name} {kind.lower()}" for name, kind in fields) + ")"
