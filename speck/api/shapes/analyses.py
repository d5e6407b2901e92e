"""The shapes of analyses, and of the request for one."""

from __future__ import annotations

from datetime import UTC

from marshmallow import fields
from marshmallow.validate import Range

from speck.api.shapes.base import list_shape, optional_text
from speck.api.shapes.records import record_shape
from speck.model.analysis import AnalysisHead, AnalysisState
from speck.spec.fields import Name
from speck.spec.strict_schema import StrictSchema

ANALYSIS_STATES = tuple(map(str, AnalysisState))
AnalysisHeadShape = record_shape(AnalysisHead, "AnalysisHeadShape")


def _optional_dicts(description: str) -> fields.List[dict[str, object]]:
    return fields.List(fields.Dict(), metadata={"description": description})


class AnalysisShape(AnalysisHeadShape):  # type: ignore[misc, valid-type]
    """While it runs, `progress` is present; the results are once it is done, and one that
    follows holds the latest. A number that the samples do not support is null."""

    waits_for = optional_text("the analysis that runs before it, while it has not begun")
    progress = fields.Dict(
        metadata={"description": "step, done, of: the step that runs, and how many are done"}
    )
    window = fields.Dict(metadata={"description": "from, to, seconds"})
    samples = fields.Dict(
        metadata={"description": "number of rows, and how many of them are invalid"}
    )
    jobs = _optional_dicts("rates, cost and state of each job, and the samples behind them")
    links = _optional_dicts(
        "what producers send and readers receive, and the traffic between sites"
    )
    sites = _optional_dicts("capacity and use of each site")
    ranking = _optional_dicts("jobs that belong at edges, best candidate first")
    bottlenecks = _optional_dicts("kind, name, value, why")
    forecast = _optional_dicts(
        "site, topic, at, rate, low, high, method, mape of each link; with `ahead_s` only"
    )


class AnalysisRequestShape(StrictSchema):
    composition = Name(metadata={"description": "without it, all compositions"})
    window_s = fields.Float(
        load_default=600.0, validate=Range(min=1, max=31 * 86400), metadata={"default": 600}
    )
    since = fields.AwareDateTime(format="iso", default_timezone=UTC)
    until = fields.AwareDateTime(
        format="iso",
        default_timezone=UTC,
        metadata={"description": "without it, the time of the newest sample"},
    )
    master = fields.String(
        metadata={"description": "name or URL of one of the service's masters; else its first"}
    )
    ahead_s = fields.Float(
        load_default=None,
        allow_none=True,
        validate=Range(min=60, max=43_200),
        metadata={
            "description": "also forecast the rates of links for so many seconds; a placement by"
            " this analysis then plans for the upper bound"
        },
    )


ANALYSES = list_shape("analyses", AnalysisHeadShape)
