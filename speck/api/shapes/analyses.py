"""The shapes of analyses, and of the request for one."""

from __future__ import annotations

from datetime import UTC

from marshmallow import fields
from marshmallow.validate import Range

from speck.api.shapes.base import list_shape
from speck.api.shapes.records import record_shape
from speck.model.analysis import Analysis, AnalysisHead, AnalysisState
from speck.model.analysis_result import AnalysisResult
from speck.spec.fields import Name
from speck.spec.strict_schema import StrictSchema

ANALYSIS_STATES = tuple(map(str, AnalysisState))
AnalysisHeadShape = record_shape(AnalysisHead, "AnalysisHeadShape")


class AnalysisShape(
    record_shape(AnalysisResult, "AnalysisResultShape"),  # type: ignore[misc]
    record_shape(Analysis, "AnalysisWithProgressShape"),  # type: ignore[misc]
):
    """While it runs, `progress` is present; the results are once it is done, and one that
    follows holds the latest. A number that the samples do not support is null."""


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
