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
    text,
)
from speck.api.shapes.records import nested_shape, record_shape
from speck.model.finding import PartFinding
from speck.model.site import Calibration, Site
from speck.service.status import SiteState, SiteView
from speck.tls.legs import PARTS

SITE_STATES = tuple(map(str, SiteState))


CalibrationShape = nested_shape(Calibration)


SiteShape = type("SiteShape", (record_shape(Site, "S"), record_shape(SiteView, "V")), {})


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
