"""The shapes of answers, for the OpenAPI document and for the tests that hold routes to them.

Every field is always there unless it says otherwise; `null` where it allows that.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

from marshmallow import RAISE, Schema, fields
from marshmallow.validate import Range

from speck.model.change import Cause, ChangeState, OperationState
from speck.model.job import JobOptions
from speck.model.plan import Action
from speck.model.site import Tier
from speck.service.tokens import Role
from speck.spec.fields import Amount, Choice, Flag, Name
from speck.spec.options import derive_fields
from speck.spec.strict_schema import StrictSchema

SITE_STATES = ("up", "degraded", "unreachable", "unknown")
JOB_STATES = (
    "pending",
    "deploying",
    "running",
    "stalled",
    "updating",
    "moving",
    "stopping",
    "stopped",
    "failed",
    "unreachable",
    "lost",
)
CHANGE_STATES = tuple(map(str, ChangeState))


class Shape(Schema):
    """An answer that holds these fields and no others."""

    class Meta:
        unknown = RAISE


def _text(description: str = "", **more: Any) -> fields.String:
    return fields.String(required=True, metadata={"description": description}, **more)


def _maybe(description: str = "") -> fields.String:
    return _text(description, allow_none=True)


def _optional(description: str = "") -> fields.String:
    return fields.String(metadata={"description": description})


def _whole(description: str = "", **more: Any) -> fields.Integer:
    return fields.Integer(required=True, strict=True, metadata={"description": description}, **more)


def _number(description: str = "", **more: Any) -> fields.Float:
    return fields.Float(required=True, metadata={"description": description}, **more)


def _flag(description: str = "") -> fields.Boolean:
    return fields.Boolean(required=True, metadata={"description": description})


def _one_of(values: Any, description: str = "") -> fields.String:
    about = {"description": description, "enum": [str(value) for value in values]}
    return fields.String(required=True, metadata=about)


def _list(inner: Any) -> fields.List[Any]:
    return fields.List(fields.Nested(inner) if _is_shape(inner) else inner, required=True)


def _is_shape(inner: Any) -> bool:
    return isinstance(inner, type) and issubclass(inner, Schema)


def _of(noun: str, inner: Any) -> Any:
    """`{noun: [inner]}`."""
    name = f"{noun.title().replace('_', '')}List"
    return type(name, (Shape,), {noun: _list(inner)})


# --- sites --------------------------------------------------------------------------------


class SpeShape(Shape):
    kind = _text()
    address = _text()


class BrokerShape(Shape):
    kind = _text()
    address = _text()
    credentials = _optional("the name of a credentials file, when the broker needs one")


class SlotsShape(Shape):
    total = _whole(allow_none=True)
    free = _whole(allow_none=True)


class CalibrationShape(Shape):
    """What a run of the calibration job told of a site."""

    cores = fields.Float(required=True, metadata={"description": "that its engine may use"})
    pace = fields.Float(
        required=True,
        allow_none=True,
        metadata={"description": "speed of one core against the reference, the first cloud site"},
    )
    unit_s = fields.Float(
        required=True, metadata={"description": "CPU seconds for the fixed unit of work"}
    )
    at = _text()
    detail = fields.Dict(required=True)


class SiteShape(Shape):
    name = _text()
    tier = Choice(Tier, required=True)
    spe = fields.Nested(SpeShape, required=True)
    broker = fields.Nested(BrokerShape, required=True)
    uplink_mbps = fields.Float(metadata={"description": "left out when it is not known"})
    labels = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    state = _one_of(SITE_STATES)
    error = _maybe("why a part of it does not answer")
    slots = fields.Nested(SlotsShape, required=True)
    engine_version = _maybe()
    last_seen = _maybe("when the site's agent was heard last")
    agent = fields.Dict(
        required=True,
        allow_none=True,
        metadata={"description": "its last report: state_folder, free_bytes, load, slots, ..."},
    )
    calibration = fields.Nested(CalibrationShape, required=True, allow_none=True)
    messages_lost = _whole("at its broker since the service started, as far as is known")


class HeartbeatShape(Shape):
    name = _text()
    last_seen = _text()


class CommandsShape(Shape):
    commands = fields.List(fields.Dict(), required=True)
    again = fields.Float(
        required=True, metadata={"description": "seconds after which to ask again"}
    )


class PieceShape(Shape):
    received = _whole("bytes that have gone by: where the next piece begins")
    pause = fields.Float(
        required=True, metadata={"description": "seconds to wait before the next piece"}
    )


class FindingShape(Shape):
    part = _one_of(("engine", "broker", "agent"))
    severity = _one_of(("error", "warning"))
    setting = _text()
    found = _text()
    why = _text()
    mend = _text("the line that mends it")


class SiteCheckShape(Shape):
    name = _text()
    ok = _flag("no finding is an error")
    findings = _list(FindingShape)


# --- jobs ---------------------------------------------------------------------------------


def _answer(field: fields.Field[Any]) -> fields.Field[Any]:
    """An option of a job as the API shows it: always there, unless nothing is known of it or it is
    a mapping at its default."""
    field.required = not (field.allow_none or isinstance(field, fields.Nested))
    return field


class JobShape(Shape):
    job_name = _text()
    source_topic = _text()
    sink_topic = _text()
    entry_class = _text()
    job_path = _text()
    spe_address = _optional("as it was given")
    site = _maybe("where it runs, or would")
    source_broker = _optional("as it was given")
    source_site = _optional("as it was given")
    sink_broker = _optional("as it was given")
    sink_site = _optional("as it was given")
    vars().update({name: _answer(field) for name, field in derive_fields(JobOptions).items()})
    state = _one_of(JOB_STATES, "what is observed")
    composition = _maybe("null: posted alone")
    revision = _whole(allow_none=True)
    engine_job_id = _maybe()
    attempt = _whole("numbers the incarnations", allow_none=True)
    error = _maybe()


class JobAcceptedShape(Shape):
    change = _text()
    revision = _whole(allow_none=True)
    state = _one_of(CHANGE_STATES)


class JobExceptionShape(Shape):
    at = _text("RFC 3339")
    name = _text()
    trace = _text()
    task = _maybe()
    reason = _text("the one line of the trace that says most")


class SavepointShape(Shape):
    job_name = _text()
    id = _text()
    location = _maybe("a path or URI that the engine can read")
    state = _one_of(("running", "done"))


# --- plans and changes ----------------------------------------------------------------------


class SummaryShape(Shape):
    add = _whole()
    update = _whole()
    move = _whole()
    remove = _whole()
    unchanged = _whole()


_JOB_CHANGE: dict[str, Any] = {
    "job_name": _text(),
    "action": Choice(Action, required=True),
    "reason": _text(),
    "from": _maybe("site"),
    "to": _maybe("site"),
}
JobChangeShape = type("JobChangeShape", (Shape,), _JOB_CHANGE)  # `from` is a word of Python


class OperationShape(Shape):
    id = _whole()
    kind = _text()
    job_name = _maybe()
    site = _maybe()
    after = _list(fields.Integer())
    reason = _text()
    only_if_failed = fields.Integer(
        metadata={"description": "it is skipped when the operation of this id succeeds"}
    )


class OperationOutcomeShape(OperationShape):
    state = Choice(OperationState, required=True)
    started = _maybe()
    ended = _maybe()
    attempts = _whole("calls, retries included")
    error = _maybe()
    progress = fields.String(metadata={"description": "how far one is that takes its time"})


class PlanShape(Shape):
    summary = fields.Nested(SummaryShape, required=True)
    jobs = _list(JobChangeShape)
    operations = _list(OperationShape)
    text = _text("one line for each operation")


class ChangeHeadShape(Shape):
    id = _text()
    composition = _maybe("null: a job posted alone")
    job_name = _maybe("set for a job posted alone")
    revision = _whole(allow_none=True)
    cause = _one_of(Cause, "why there is a change; a repair brings back what was accepted before")
    by = _maybe("the name of the token that asked for it")
    drain = _flag("whether links run empty before their readers leave")
    leave = _list(fields.String(metadata={"description": "a job that a repair leaves alone"}))
    left_stopped = _list(
        fields.String(metadata={"description": "a job that the superseded change had stopped"})
    )
    state = _one_of(CHANGE_STATES)
    started = _text()
    ended = _maybe()
    error = _maybe()
    superseded_by = _maybe("the change that took its place")


class ChangeShape(ChangeHeadShape):
    operations = _list(OperationOutcomeShape)


class AcceptedShape(Shape):
    change = _maybe("null: a plan only")
    composition = _text()
    revision = _whole(allow_none=True)
    plan = fields.Nested(PlanShape, required=True)
    warnings = _list(fields.String())
    state = fields.String(metadata={"enum": list(CHANGE_STATES), "description": "after a wait"})


# --- compositions ---------------------------------------------------------------------------


class CompositionHeadShape(Shape):
    name = _text()
    revision = _whole()
    deployed_revision = _whole(allow_none=True)
    jobs = _whole("how many")
    at = _text()


class DesiredShape(Shape):
    revision = _whole()
    jobs = _list(fields.Dict())


class DeployedJobShape(Shape):
    job_name = _text()
    site = _text()
    engine_job_id = _text()
    attempt = _whole()
    jar = _text()
    ended = _flag()


class DeployedShape(Shape):
    revision = _whole(allow_none=True)
    jobs = _list(DeployedJobShape)


class RequirementShape(Shape):
    name = _one_of(("max_latency_ms", "min_rate"))
    wanted = _number()
    measured = _number("null: the evidence does not tell", allow_none=True)
    ok = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={"description": "whether it is kept; null: the evidence does not tell"},
    )
    why = _text()


class CompositionShape(Shape):
    name = _text()
    desired = fields.Nested(DesiredShape, required=True)
    deployed = fields.Nested(DeployedShape, required=True)
    jobs = _list(JobShape)
    requirements = _list(RequirementShape)


class DriftEntryShape(Shape):
    job_name = _text()
    kind = _text()
    expected = _text()
    observed = _text()


class RevisionShape(Shape):
    revision = _whole()
    at = _text()
    by = _maybe("the token's name")


class RollbackShape(Shape):
    revision = _whole("an earlier revision")


class GraphShape(Shape):
    nodes = _list(fields.Dict())
    edges = _list(fields.Dict())


# --- analyses -------------------------------------------------------------------------------


ANALYSIS_STATES = ("running", "done", "failed", "cancelled")


class AnalysisHeadShape(Shape):
    id = _text()
    state = _one_of(ANALYSIS_STATES)
    composition = _maybe("null: all of them")
    started = _text()
    ended = _maybe()
    error = _maybe()
    master = _text("the Spark master that it runs at")
    follow = _flag("worked out anew whenever there are new samples, until it is cancelled")


def _said(description: str) -> fields.List[Any]:
    return fields.List(fields.Dict(), metadata={"description": description})


class AnalysisShape(AnalysisHeadShape):
    """What it says is there once it is done (while it follows: so far). Numbers that the
    evidence does not carry are null."""

    window = fields.Dict(metadata={"description": "from, to, seconds"})
    samples = fields.Dict(metadata={"description": "rows, and how many of them are faulty"})
    jobs = _said("rates, cost and state of each job, with what they rest on")
    links = _said("what producers send and readers take, and what crosses between sites")
    sites = _said("what sites have and use")
    ranking = _said("jobs that should sit at edges, the first first")
    bottlenecks = _said("kind, name, value, why")


ANALYSES = _of("analyses", AnalysisHeadShape)


class AnalysisRequestShape(Shape):
    composition = Name(metadata={"description": "else all"})
    window_s = fields.Float(
        load_default=600.0, validate=Range(min=1, max=31 * 86400), metadata={"default": 600}
    )
    since = fields.AwareDateTime(format="iso", default_timezone=UTC)
    until = fields.AwareDateTime(
        format="iso", default_timezone=UTC, metadata={"description": "else the newest sample"}
    )
    master = fields.String(load_default="local[*]")
    follow = fields.Boolean(load_default=False)


# --- placements -----------------------------------------------------------------------------


class LayoutShape(Shape):
    sites = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    links = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(),
        metadata={"description": "the site of the broker that carries `job -> topic`"},
    )
    wan_bytes_per_s = _number("bytes of messages that cross between sites, predicted")
    utilisation = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.Float(allow_none=True),
        metadata={"description": "share of each site's capacity"},
    )
    latency_ms = _number("of the slowest way through the composition", allow_none=True)
    max_rate = _number("records a second that could be taken in", allow_none=True)
    held_by = _maybe("what bounds max_rate")
    violations = _list(fields.String(metadata={"description": "a limit that is not kept"}))


class _MoveShape(Shape):
    job_name = _text()
    to = _text("site")
    reason = _text()
    stateful = fields.Boolean(required=True, allow_none=True)
    state_bytes = _whole(allow_none=True)


MoveShape = type("MoveShape", (_MoveShape,), {"from": _text("site")})


class ProposedShape(LayoutShape):
    moves = _list(MoveShape)


class _RewiredShape(Shape):
    topic = _text()
    to = _text("the site whose broker carries it then")


RewiredShape = type("RewiredShape", (_RewiredShape,), {"from": _text("site")})


class GainShape(Shape):
    wan_bytes_per_s = _number("what is saved")
    share = _number("of what crosses today; null when nothing does", allow_none=True)


class PlacementHeadShape(Shape):
    id = _text()
    at = _text()
    composition = _text()
    revision = _whole("the one that it was made for")
    policy = _text()
    analysis = _text()
    gain = fields.Nested(GainShape, required=True)
    violations = _list(fields.String(metadata={"description": "a limit that it does not keep"}))


class PlacementShape(PlacementHeadShape):
    today = fields.Nested(LayoutShape, required=True)
    proposed = fields.Nested(ProposedShape, required=True)
    rewired = _list(RewiredShape)
    reasons = fields.Dict(required=True, keys=fields.String(), values=fields.String())
    notes = _list(fields.String())
    doubts = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(),
        metadata={"description": "jobs whose figures are not to be trusted, and why"},
    )
    unmeasured = _list(fields.String(metadata={"description": "a flow that is in no sum"}))
    optimal = _flag("proven to be the best")
    gap = _number("how far (0 to 1) it may be from the best", allow_none=True)
    description = fields.Dict(required=True, metadata={"description": "the new composition"})
    yaml = _text("the same as YAML")


SHARE = Range(max=1.0, error="must be at most {max:g}: it is a share")


class LimitsShape(StrictSchema):
    """Limits of one placement, before those of the composition's requirements."""

    utilisation = Amount(validate=SHARE)
    max_latency_ms = Amount()
    min_rate = Amount()
    latency_weight = Amount()
    time_limit_s = Amount(validate=Range(max=600.0, error="must be at most {max:g}"))


class PlacementRequestShape(StrictSchema):
    composition = Name(required=True)
    policy = Name(load_default="milp")
    analysis = Name(metadata={"description": "else the newest one that is done"})
    limits = fields.Nested(LimitsShape)


# --- autopilot ------------------------------------------------------------------------------


class AutopilotSettingsShape(StrictSchema):
    on = Flag(required=True)
    every_s = Amount(load_default=300.0, metadata={"description": "between two analyses"})
    min_gain = Amount(
        load_default=0.2,
        validate=SHARE,
        metadata={"description": "share of the bytes between sites that must be saved"},
    )
    policy = Name(load_default="milp")
    settle_s = Amount(
        load_default=600.0, metadata={"description": "nothing is done so long after any change"}
    )
    looks = fields.Integer(
        load_default=2,
        strict=True,
        validate=Range(1, 100, error="must be from {min} to {max}"),
        error_messages={"invalid": "must be a whole number"},
        metadata={"description": "so many analyses in a row must say the same"},
    )


class AutopilotEntryShape(Shape):
    at = _text()
    kind = _one_of(("settings", "wait", "act", "outcome", "trouble"))
    message = _text()
    analysis = _optional()
    placement = _optional()
    change = _optional()
    by = _optional("the token's name")


class AutopilotShape(Shape):
    composition = _text()
    on = _flag()
    every_s = _number()
    min_gain = _number()
    policy = _text()
    settle_s = _number()
    looks = _whole()
    analysis = _maybe("one that is under way")
    next = _maybe("when it looks next, if all is quiet")
    log = _list(AutopilotEntryShape)


# --- the rest -------------------------------------------------------------------------------


class ArtifactShape(Shape):
    sha256 = _text()
    bytes = _whole()
    at = _text()


class EventShape(Shape):
    id = _whole()
    at = _text()
    kind = _text()
    message = _text()
    site = _optional()
    job_name = _optional()
    composition = _optional()
    change = _optional()


class NewTokenShape(Shape):
    name = _text()
    role = Choice(Role, required=True)
    site = fields.String(metadata={"description": "with role site: the one it is bound to"})


class TokenShape(Shape):
    name = _text()
    role = Choice(Role, required=True)
    site = _maybe()
    at = _text()


class TokenMadeShape(Shape):
    name = _text()
    role = Choice(Role, required=True)
    site = _maybe()
    token = _text("shown this once")


class HealthShape(Shape):
    status = _one_of(("ok", "ready"))


class FaultShape(Shape):
    path = _text("like jobs[2].sink_topic")
    message = _text()
    line = fields.Integer(metadata={"description": "1-based; for YAML"})


class ProblemShape(Shape):
    """RFC 9457."""

    type = _text()
    title = _text()
    status = _whole()
    detail = _text()
    request_id = _text("as in the header X-Request-Id and in the log")
    errors = _list(FaultShape)
    change = _optional("409: the change that is in the way")
    received = fields.Integer(
        metadata={"description": "409 of a piece of state: where the next one begins"}
    )


SITES = _of("sites", SiteShape)
JOBS = _of("jobs", JobShape)
COMPOSITIONS = _of("compositions", CompositionHeadShape)
CHANGES = _of("changes", ChangeHeadShape)
ARTIFACTS = _of("artifacts", ArtifactShape)
TOKENS = _of("tokens", TokenShape)
EVENTS = _of("events", EventShape)
EXCEPTIONS = _of("exceptions", JobExceptionShape)
DRIFT = _of("drift", DriftEntryShape)
PLACEMENTS = _of("placements", PlacementHeadShape)
REVISIONS = _of("revisions", RevisionShape)
