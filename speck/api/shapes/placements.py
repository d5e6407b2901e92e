"""The shapes of placements, and of the request for one."""

from __future__ import annotations

from marshmallow import fields
from marshmallow.validate import OneOf, Range

from speck.api.shapes.base import (
    Shape,
    flag,
    integer,
    list_of,
    list_shape,
    nullable_text,
    number,
    text,
)
from speck.placement.names import DEFAULT_POLICY, IDEAS, list_policies
from speck.spec.fields import Amount, Flag, Name
from speck.spec.strict_schema import StrictSchema


class LayoutShape(Shape):
    sites = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    links = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(),
        metadata={"description": "the site of the broker that carries `job -> topic`"},
    )
    wan_bytes_per_s = number("predicted bytes of messages between sites, per second")
    utilisation = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Float(allow_none=True),
        metadata={"description": "used share of each site's capacity"},
    )
    cores = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Float(allow_none=True),
        metadata={"description": "CPU cores that each site's engine uses"},
    )
    memory_bytes = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Float(),
        metadata={"description": "heap that the composition's jobs need at each site"},
    )
    in_rate = number("records per second that enter, for which the figures are predicted")
    latency_ms = number("latency of the slowest path through the composition", allow_none=True)
    max_rate = number("highest sustainable input rate, in records per second", allow_none=True)
    held_by = nullable_text("what limits max_rate")
    violations = list_of(fields.String(metadata={"description": "a limit that is exceeded"}))


class _MoveShape(Shape):
    job_name = text()
    to = text("site")
    reason = text()
    stateful = fields.Boolean(required=True, allow_none=True)
    state_bytes = integer(allow_none=True)
    silence_s = number("expected time for which the move stops the job, in seconds")
    saved_bytes_per_s = number(
        "bytes/s that would be sent between sites in addition if only this job went back",
        allow_none=True,
    )
    cost_bytes = number("its state, and what arrives while it is silent")
    break_even_s = number(
        "seconds after which it has saved what it costs; null: it saves nothing by itself",
        allow_none=True,
    )


MoveShape = type("MoveShape", (_MoveShape,), {"from": text("site")})


class ProposedShape(LayoutShape):
    moves = list_of(MoveShape)


class _ScaleShape(Shape):
    job_name = text()
    site = text("where it runs when it is measured")
    to = integer("subtasks that it is to have")
    needed = integer("subtasks that its rates need, whatever slots there are")
    in_rate = number("records per second that arrive")
    true_processing_rate = number("records per second that today's subtasks can process together")
    reason = text()


ScaleShape = type("ScaleShape", (_ScaleShape,), {"from": integer("subtasks that it has")})


class _RewiredShape(Shape):
    topic = text()
    to = text("the site whose broker will carry the topic")


RewiredShape = type("RewiredShape", (_RewiredShape,), {"from": text("site")})


class GainShape(Shape):
    wan_bytes_per_s = number("bytes between sites saved, per second")
    share = number(
        "saved share of today's bytes between sites; null when there are none", allow_none=True
    )
    cost_bytes = number("what all moves, and restarts of jobs whose links move, cost once")
    net_bytes_per_s = number("what is saved per second, less the cost over the horizon")
    break_even_s = number(
        "seconds after which as much is saved as the moves cost; null: nothing is saved",
        allow_none=True,
    )


class SilenceShape(Shape):
    seconds = number()
    moves = integer("past moves of which it is the median; 0: a default")


class SilencesShape(Shape):
    stateless = fields.Nested(SilenceShape, required=True)
    stateful = fields.Nested(SilenceShape, required=True)


class PlacedJobShape(Shape):
    job_name = text()
    site = text("where it is today")
    proposed = text("site")
    saved_bytes_per_s = number(
        "bytes/s that would be sent between sites in addition if only this job were at"
        " `compared_with`",
        allow_none=True,
    )
    compared_with = nullable_text("site")
    cost_bytes = number(
        "what its move costs once: its state, and what arrives while it is silent", allow_none=True
    )
    break_even_s = number("seconds after which the move has saved what it costs", allow_none=True)
    confidence = nullable_text("high, medium or low; null: there is no evidence")
    why = list_of(fields.String(metadata={"description": "a reason, without the figures above"}))


class PlacementHeadShape(Shape):
    id = text()
    at = text()
    composition = text()
    revision = integer("the revision that it was computed for")
    policy = text()
    analysis = nullable_text("null where nothing was measured")
    gain = fields.Nested(GainShape, required=True)
    violations = list_of(fields.String(metadata={"description": "a limit that it exceeds"}))


class PlacementShape(PlacementHeadShape):
    today = fields.Nested(LayoutShape, required=True)
    proposed = fields.Nested(ProposedShape, required=True)
    memory_available_bytes = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Float(allow_none=True),
        metadata={
            "description": "heap of each site for the composition's jobs; null when it is unknown"
        },
    )
    rewired = list_of(RewiredShape)
    restarted = list_of(
        fields.String(metadata={"description": "a job that stays, but whose link moves"})
    )
    horizon_s = number("seconds within which a move has to save as many bytes as it costs")
    silences = fields.Nested(SilencesShape, required=True)
    all_moves = flag("whether moves that do not pay for themselves were asked for, too")
    move_unmeasured = flag("whether jobs without evidence were to move, too")
    scale = flag("whether the parallelism of jobs was chosen, too")
    dropped = list_of(
        fields.String(
            metadata={"description": "a job that the policy would move, though it does not pay"}
        )
    )
    evidence = fields.Dict(
        required=True,
        metadata={
            "description": "what the answer rests on; while it stays the same, so does the answer"
        },
    )
    repeats = nullable_text("the earlier placement whose evidence, and so whose answer, it has")
    scales = list_of(ScaleShape)
    jobs = list_of(PlacedJobShape)
    notes = list_of(fields.String())
    doubts = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(),
        metadata={"description": "jobs whose measurements are unreliable, and why"},
    )
    unmeasured = list_of(
        fields.String(
            metadata={"description": "a flow that was not measured and is missing from all sums"}
        )
    )
    optimal = flag("whether it is proven optimal")
    gap = number("optimality gap, 0 to 1", allow_none=True)
    description = fields.Dict(required=True, metadata={"description": "the new composition"})
    yaml = text("the new composition as YAML")


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
