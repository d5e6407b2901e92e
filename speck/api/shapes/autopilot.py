"""The shapes of an autopilot's settings and of its log."""

from __future__ import annotations

from marshmallow import ValidationError, fields
from marshmallow.validate import Range

from speck.api.shapes.placements import SHARE, policy_field
from speck.api.shapes.records import record_shape
from speck.service.autopilot import AutopilotView
from speck.spec.fields import Amount, Flag
from speck.spec.strict_schema import StrictSchema


def _is_horizon(seconds: float) -> None:
    if seconds and not 60 <= seconds <= 43_200:
        raise ValidationError("must be 0, or from 60 to 43200")


class AutopilotSettingsShape(StrictSchema):
    on = Flag(required=True)
    every_s = Amount(load_default=300.0, metadata={"description": "seconds between two analyses"})
    min_gain = Amount(
        load_default=0.2,
        validate=SHARE,
        metadata={"description": "share of the bytes between sites that a placement must save"},
    )
    policy = policy_field()
    settle_s = Amount(
        load_default=600.0,
        metadata={"description": "seconds to wait after any change before the next one"},
    )
    agreeing = fields.Integer(
        load_default=2,
        strict=True,
        validate=Range(1, 100, error="must be from {min} to {max}"),
        error_messages={"invalid": "must be a whole number"},
        metadata={"description": "number of consecutive analyses that must agree"},
    )
    scale = Flag(
        load_default=False,
        metadata={"description": "also change the parallelism of jobs, by DS2's rule"},
    )
    ahead_s = fields.Float(
        load_default=0.0,
        validate=_is_horizon,
        metadata={"description": "plan for the rates forecast for so many seconds; 0: today's"},
    )


AutopilotShape = record_shape(AutopilotView, "AutopilotShape")
