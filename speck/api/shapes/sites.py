"""The shapes of sites, and of the messages between a site's agent and the service."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    flag,
    integer,
    list_of,
    list_shape,
    one_of,
    optional_text,
    text,
)
from speck.api.shapes.records import nested_shape, record_shape
from speck.model.finding import PartFinding
from speck.model.site import Calibration, Tier
from speck.service.status import SiteState, SiteView
from speck.spec.fields import Choice
from speck.tls.legs import PARTS

SITE_STATES = tuple(map(str, SiteState))


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


CalibrationShape = nested_shape(Calibration)


class RegisteredShape(Shape):
    name = text()
    tier = Choice(Tier, required=True)
    spe = fields.Nested(SpeShape, required=True)
    broker = fields.Nested(BrokerShape, required=True)
    uplink_mbps = fields.Float(metadata={"description": "absent when it is not known"})
    labels = fields.Dict(required=True, keys=fields.String(), values=fields.String())


SiteShape = type("SiteShape", (RegisteredShape, record_shape(SiteView, "SiteViewShape")), {})


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


FindingShape = record_shape(
    PartFinding,
    "FindingShape",
    part=one_of(PARTS),
    severity=one_of(("error", "warning", "note")),
)


class SiteCheckShape(Shape):
    name = text()
    ok = flag("true when no finding is an error")
    findings = list_of(FindingShape)


SITES = list_shape("sites", SiteShape)
