"""What was asked of a program's state under the ids of triggers, and what came of it. The newest
are remembered, so that an order that is repeated has the same answer."""

from __future__ import annotations

from typing import Any

Triggers = dict[str, dict[str, Any]]
_KEPT = 20


def open_trigger(known: Triggers, trigger: str, **more: Any) -> Triggers:
    """The known ones, and one of which the outcome is awaited."""
    return _put(known, trigger, {**_describe(is_done=False), **more})


def close_trigger(known: Triggers, trigger: str, location: str) -> Triggers:
    """The known ones, with one whose state lies at a location."""
    return _put(known, trigger, _describe(location=location))


def fail_trigger(known: Triggers, trigger: str, failure: str) -> Triggers:
    """The known ones, with one that has failed."""
    return _put(known, trigger, _describe(failure=failure))


def fail_open(known: Triggers, failure: str) -> Triggers:
    """The known ones: those whose outcome is awaited have failed."""
    failed = _describe(failure=failure)
    return {name: each if each["done"] else failed for name, each in known.items()}


def list_open(known: Triggers) -> list[str]:
    """Those whose outcome is awaited."""
    return [name for name, each in known.items() if not each["done"]]


def _put(known: Triggers, trigger: str, entry: dict[str, Any]) -> Triggers:
    others = {name: each for name, each in known.items() if name != trigger}
    return {**dict(list(others.items())[-_KEPT:]), trigger: entry}


def _describe(
    *, is_done: bool = True, location: str | None = None, failure: str | None = None
) -> dict[str, Any]:
    return {"done": is_done, "location": location, "failure": failure}
