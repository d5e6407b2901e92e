"""The shapes of sites, and of the messages between a site's agent and the service."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    flag,
    integer,
    list_of,
    list_shape,
    nullable_text,
    one_of,
    optional_text,
    text,
)
from speck.api.shapes.records import record_shape
from speck.model.site import Calibration, Tier
from speck.spec.fields import Choice
from speck.tls.legs import PARTS

SITE_STATES = ("up", "degraded", "unreachable", "unknown")


class EngineShape(Shape):
    kind = text()
    address = optional_text("absent if its kind is reached through the site's agent")
    credentials = optional_text("name of the file with what the engine requires of its clients")


class SpeShape(EngineShape):
    beside = fields.Nested(
        EngineShape,
        allow_none=True,
        metadata={"description": "another engine, for artifacts that this one does not take"},
    )


class BrokerShape(Shape):
    kind = text()
    address = text()
    credentials = optional_text(
        "name of the file with the user, password and certificates that the broker requires"
    )


class SlotsShape(Shape):
    total = integer(allow_none=True)
    free = integer(allow_none=True)


CalibrationShape = record_shape(Calibration, "CalibrationShape")


class SiteShape(Shape):
    name = text()
    tier = Choice(Tier, required=True)
    spe = fields.Nested(SpeShape, required=True)
    broker = fields.Nested(BrokerShape, required=True)
    uplink_mbps = fields.Float(metadata={"description": "absent when it is not known"})
    labels = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    state = one_of(SITE_STATES)
    error = nullable_text("why its engine or broker does not answer")
    slots = fields.Nested(SlotsShape, required=True)
    engine_version = nullable_text()
    last_seen = nullable_text("when the site's agent last reported")
    agent = fields.Dict(
        required=True,
        allow_none=True,
        metadata={"description": "its last report: state_folder, free_bytes, load, slots, ..."},
    )
    calibration = fields.Nested(CalibrationShape, required=True, allow_none=True)
    messages_lost = integer("known losses at its broker since the service started")


class HeartbeatShape(Shape):
    name = text()
    last_seen = text()


class CommandsShape(Shape):
    commands = fields.List(fields.Dict(), required=True)
    again = fields.Float(
        required=True, metadata={"description": "seconds to wait before the next request"}
    )


class PieceShape(Shape):
    received = integer("bytes received so far: the offset of the next piece")
    pause = fields.Float(
        required=True, metadata={"description": "seconds to wait before sending the next piece"}
    )


class FindingShape(Shape):
    part = one_of(PARTS)
    severity = one_of(("error", "warning", "note"))
    setting = text()
    value = text()
    why = text()
    mend = text("the setting that fixes it")


class SiteCheckShape(Shape):
    name = text()
    ok = flag("true when no finding is an error")
    findings = list_of(FindingShape)


SITES = list_shape("sites", SiteShape)
