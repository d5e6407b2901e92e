"""The report of a site's agent: what is known of it is checked, since it is stored and shown."""

from __future__ import annotations

import math
from typing import Any

from marshmallow import EXCLUDE, ValidationError, fields
from marshmallow.validate import Length, Range, Regexp

from speck.errors import InvalidError
from speck.model.addresses import HTTP, normalise
from speck.model.site import AgentReport
from speck.model.values import JsonObject
from speck.spec.documents import problems_of
from speck.spec.fields import EngineAddress, Text
from speck.spec.strict_schema import StrictSchema

MAX_BYTES = 16 * 1024
"""The largest heartbeat that is taken."""

_FOLDER = Length(1, 4096, error="must have 1 to 4096 characters")
_WORD = Length(0, 100, error="must have at most 100 characters")


class _Number(fields.Float):
    """A finite number of at least 0; text is refused even if it looks like a number."""

    def __init__(self, most: float = 1e18, **more: Any) -> None:
        fault = f"must be a number from 0 to {most:g}"
        super().__init__(
            allow_none=True, validate=Range(0, most, error=fault), **more, error_messages={}
        )

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ValidationError("must be a number")
        return value  # an int stays one


class HeartbeatSchema(StrictSchema):
    """What an agent reports; each field may be absent, or null where the agent does not know.
    Fields of another version of the agent are left out: agents are updated one by one."""

    class Meta:
        unknown = EXCLUDE

    identity = Text(validate=Regexp("[0-9a-f]{32}\\Z", error="must be 32 hex digits"))
    state_folder = Text(validate=_FOLDER)
    listen = EngineAddress(allow_none=True, validate=Length(max=300))
    free_bytes = _Number()
    vars()["load"] = _Number(1e6)  # not by its name, which is that of a method
    cpu = _Number()
    cores = _Number(1e6)
    memory_bytes = _Number()
    memory_available_bytes = _Number()
    versions = fields.Dict(
        keys=Text(validate=_WORD),
        values=Text(allow_none=True, validate=_WORD),
        validate=Length(max=20, error="must have at most 20 entries"),
    )
    run = Text(validate=_WORD)


_HEARTBEAT = HeartbeatSchema()


def heartbeat_from_data(data: Any) -> AgentReport:
    """The report in parsed `data`, with `listen` normalised. Raises InvalidError with every
    problem."""
    try:
        beat: JsonObject = _HEARTBEAT.load(data)
    except ValidationError as error:
        problems = problems_of(error.messages)
        raise InvalidError(f"cannot read the heartbeat: {problems[0]}", problems) from error
    if beat.get("listen") is not None:
        beat["listen"] = normalise(beat["listen"], HTTP, "http://host:8090")
    for name in ("free_bytes", "cores", "memory_bytes", "memory_available_bytes"):
        if beat.get(name) is not None:
            beat[name] = int(beat[name])
    return AgentReport(**beat)
