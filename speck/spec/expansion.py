"""What a composition becomes once its defaults are written out, counted before that is done.

A document of a megabyte that sets a large default for many jobs stands for gigabytes: the limit of
the document says nothing about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speck.errors import Problem

_NUMBER_BYTES = 8
VALUE_BYTES = 8
"""What a value counts beside its text: many short ones take time and memory, too."""


def expansion_problem(data: Any, most_bytes: int) -> Problem | None:
    """The problem of a composition whose jobs, with its defaults written out, have more than
    `most_bytes` bytes; it names the place that most of them come from. `data` is parsed, and not
    checked yet."""
    jobs = data.get("jobs") if isinstance(data, Mapping) else None
    if not isinstance(jobs, list):
        return None
    defaults = data.get("defaults")
    default_bytes = (
        {key: text_bytes(key) + _size(value) for key, value in defaults.items()}
        if isinstance(defaults, Mapping)
        else {}
    )
    own_bytes, uses = 0, dict.fromkeys(default_bytes, 0)
    for job in jobs:
        own_bytes += _size(job)
        if isinstance(job, Mapping):
            for key in default_bytes.keys() - job.keys():
                uses[key] += 1
    total = own_bytes + sum(size * uses[key] for key, size in default_bytes.items())
    if total <= most_bytes:
        return None
    with_defaults = f"all jobs with their defaults have {total} bytes, at most {most_bytes} are"
    largest = max(default_bytes, key=lambda key: default_bytes[key] * uses[key], default=None)
    if largest is None or default_bytes[largest] * uses[largest] < own_bytes:
        return Problem("jobs", f"{with_defaults} taken; split the composition")
    return Problem(
        f"defaults.{largest}",
        f"{default_bytes[largest]} bytes for each of {uses[largest]} jobs: {with_defaults} taken;"
        " shorten it, or split the composition",
    )


def _size(value: Any) -> int:
    """The bytes of a value, each value within it counted with `VALUE_BYTES` beside its text."""
    if isinstance(value, Mapping):
        return VALUE_BYTES + sum(text_bytes(key) + _size(each) for key, each in value.items())
    if isinstance(value, list):
        return VALUE_BYTES + sum(map(_size, value))
    return VALUE_BYTES + text_bytes(value)


def text_bytes(value: Any) -> int:
    """The bytes of all text in a value, keys included."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        return sum(text_bytes(key) + text_bytes(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return sum(map(text_bytes, value))
    return _NUMBER_BYTES
