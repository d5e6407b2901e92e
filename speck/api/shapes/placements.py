"""The shapes of placements, and of the request for one."""

from __future__ import annotations

from marshmallow import fields
from marshmallow.validate import OneOf, Range

from speck.api.shapes.base import (
    Shape,
    list_of,
    list_shape,
    text,
)
from speck.api.shapes.records import record_shape
from speck.placement.names import DEFAULT_POLICY, IDEAS, list_policies
from speck.placement.record import Comparison, Manner, PlacementHead, ScaleOutline
from speck.spec.fields import Amount, Flag, Name
from speck.spec.strict_schema import StrictSchema

PlacementHeadShape = record_shape(PlacementHead, "PlacementHeadShape")
PlacementShape = type(
    "PlacementShape",
    (
        record_shape(PlacementHead, "PlacementHeadShape"),
        record_shape(Manner, "MannerShape"),
        record_shape(Comparison, "ComparisonShape"),
    ),
    {
        "scales": list_of(record_shape(ScaleOutline, "ScaleShape")),
        "description": fields.Dict(required=True, metadata={"description": "the new composition"}),
        "yaml": text("the new composition as YAML"),
    },
)


SHARE = Range(max=1.0, error="must be at most {max:g}: it is a share")


class LimitsShape(StrictSchema):
    """Limits of one placement; they take precedence over the composition's requirements."""

    utilisation = Amount(validate=SHARE)
    max_latency_ms = Amount()
    min_rate = Amount()
    latency_weight = Amount()
    time_limit_s = Amount(validate=Range(max=600.0, error="must be at most {max:g}"))
    horizon_s = Amount(
        metadata={"description": "seconds within which a move has to save what it costs"}
    )


def policy_field() -> fields.String:
    """A policy; an unknown one is refused with the choices."""
    return fields.String(
        load_default=DEFAULT_POLICY,
        validate=OneOf(list_policies(), error="there is no policy {input!r}, only {choices}"),
        metadata={"description": "; ".join(f"{name}: {idea}" for name, idea in IDEAS.items())},
    )


class PlacementRequestShape(StrictSchema):
    composition = Name(required=True)
    policy = policy_field()
    analysis = Name(metadata={"description": "without it, the newest completed analysis"})
    limits = fields.Nested(LimitsShape)
    scale = Flag(
        load_default=False,
        metadata={"description": "also choose each measured job's parallelism, by DS2's rule"},
    )
    all_moves = Flag(
        load_default=False,
        metadata={"description": "also propose moves that save less than they cost"},
    )
    move_unmeasured = Flag(
        load_default=False,
        metadata={
            "description": "also move jobs that were not measured, and do without an analysis if"
            " there is none; with all-cloud only"
        },
    )


PLACEMENTS = list_shape("placements", PlacementHeadShape)


class AdviceRequestShape(StrictSchema):
    composition = Name(required=True)
    policy = policy_field()
    analysis = Name(metadata={"description": "without it, a new one is made"})
    window_s = fields.Float(
        load_default=600.0,
        validate=Range(min=1, max=31 * 86400),
        metadata={"description": "seconds that a new analysis looks back"},
    )
    limits = fields.Nested(LimitsShape)
    scale = Flag(
        load_default=False,
        metadata={"description": "also choose each measured job's parallelism, by DS2's rule"},
    )


class AdviceShape(Shape):
    """While the analysis runs, `analysis` alone is present."""

    analysis = fields.Dict(required=True, metadata={"description": "the analysis it goes by"})
    composition = fields.String()
    ranking = fields.List(
        fields.Dict(), metadata={"description": "the composition's jobs in the analysis's ranking"}
    )
    why = fields.List(
        fields.String(metadata={"description": "a reason, and the jobs that it holds for"})
    )
    summary = fields.List(
        fields.String(metadata={"description": "effect, cost of the moves and notes, in words"})
    )
    legend = fields.Dict(metadata={"description": "what the figures of a job mean"})
    placement = fields.Nested(PlacementShape)
