"""The shapes of responses, for the OpenAPI document and for the tests that hold routes to them.

One module a noun. Every field is always present unless its description says otherwise, and null
only where its schema allows that.
"""

from speck.api.shapes.analyses import (
    ANALYSES,
    ANALYSIS_STATES,
    AnalysisHeadShape,
    AnalysisRequestShape,
    AnalysisShape,
)
from speck.api.shapes.autopilot import AutopilotSettingsShape, AutopilotShape
from speck.api.shapes.changes import CHANGE_STATES, CHANGES, AcceptedShape, ChangeShape, PlanShape
from speck.api.shapes.compositions import (
    COMPOSITIONS,
    DRIFT,
    REVISIONS,
    CompositionShape,
    GraphShape,
    RollbackShape,
)
from speck.api.shapes.forgetting import ForgottenShape
from speck.api.shapes.jobs import (
    EXCEPTIONS,
    JOBS,
    JobAcceptedShape,
    JobShape,
    SavepointShape,
)
from speck.api.shapes.links import PublishedShape, RecordsShape, TapShape
from speck.api.shapes.metrics import ImportedShape, JobMetricsShape, RatesListShape
from speck.api.shapes.placements import (
    PLACEMENTS,
    AdviceRequestShape,
    AdviceShape,
    PlacementRequestShape,
    PlacementShape,
)
from speck.api.shapes.restored import AdoptedShape, RestoredShape
from speck.api.shapes.sites import (
    SITE_STATES,
    SITES,
    CalibrationShape,
    CommandsShape,
    HeartbeatShape,
    PieceShape,
    SiteCheckShape,
    SiteShape,
)
from speck.api.shapes.system import (
    ARTIFACTS,
    AUDIT,
    EVENTS,
    TOKENS,
    ArtifactShape,
    AuditVerdictShape,
    CollectedListShape,
    HealthShape,
    NewTokenShape,
    ProblemShape,
    RotationShape,
    TokenMadeShape,
    TokenShape,
)

__all__ = [
    "ANALYSES",
    "ANALYSIS_STATES",
    "ARTIFACTS",
    "AUDIT",
    "CHANGES",
    "CHANGE_STATES",
    "COMPOSITIONS",
    "DRIFT",
    "EVENTS",
    "EXCEPTIONS",
    "JOBS",
    "PLACEMENTS",
    "REVISIONS",
    "SITES",
    "SITE_STATES",
    "TOKENS",
    "AcceptedShape",
    "AdoptedShape",
    "AdviceRequestShape",
    "AdviceShape",
    "AnalysisHeadShape",
    "AnalysisRequestShape",
    "AnalysisShape",
    "ArtifactShape",
    "AuditVerdictShape",
    "AutopilotSettingsShape",
    "AutopilotShape",
    "CalibrationShape",
    "ChangeShape",
    "CollectedListShape",
    "CommandsShape",
    "CompositionShape",
    "ForgottenShape",
    "GraphShape",
    "HealthShape",
    "HeartbeatShape",
    "ImportedShape",
    "JobAcceptedShape",
    "JobMetricsShape",
    "JobShape",
    "NewTokenShape",
    "PieceShape",
    "PlacementRequestShape",
    "PlacementShape",
    "PlanShape",
    "ProblemShape",
    "PublishedShape",
    "RatesListShape",
    "RecordsShape",
    "RestoredShape",
    "RollbackShape",
    "RotationShape",
    "SavepointShape",
    "SiteCheckShape",
    "SiteShape",
    "TapShape",
    "TokenMadeShape",
    "TokenShape",
]
