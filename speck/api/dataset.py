"""/metrics/export and /metrics/import: the metrics dataset as files"""

from __future__ import annotations

from flask import Response, jsonify
from marshmallow import fields

from speck.api.context import service
from speck.api.requests import Query, moment, stream, text
from speck.api.routes import Routes
from speck.api.shapes import Shape
from speck.metrics.dataset.parsing import FORMATS
from speck.metrics.dataset.schema import TABLES, TASKS

routes = Routes("dataset", "The metrics dataset as files")

_MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
}


class ImportedShape(Shape):
    table = fields.String(required=True)
    rows = fields.Integer(required=True, metadata={"description": "rows of the file"})
    new = fields.Integer(required=True, metadata={"description": "that were not there before"})
    since = fields.String(required=True, allow_none=True)
    until = fields.String(required=True, allow_none=True)
    ignored = fields.List(fields.String(), required=True)
    warnings = fields.List(fields.String(), required=True)


@routes.get(
    "/metrics/export",
    query=[
        text("table", "which table: tasks without it", tuple(TABLES)),
        text("format", "of the file: parquet without it", FORMATS),
        moment("since", "rows of this time or later (RFC 3339)"),
        moment("until", "rows before this time (RFC 3339)"),
        text("composition", "only its rows; of jobs that were posted alone: _alone"),
    ],
    answers={200: {"type": "string", "format": "binary"}},
    answer_type=_MEDIA["parquet"],
)
def export_metrics(query: Query) -> Response:
    """One table of the metrics as a file; the header X-Rows tells how many rows it has, X-Damaged
    how many files of the dataset could not be read."""
    table, form = query["table"] or TASKS.name, query["format"] or "parquet"
    found = service().dataset.export(
        table, form, query["since"], query["until"], query["composition"]
    )
    response = Response(found.content, content_type=_MEDIA[form])
    response.content_length = found.size
    response.headers["Content-Disposition"] = f'attachment; filename="{table}.{form}"'
    response.headers["X-Rows"] = str(found.rows)
    response.headers["X-Damaged"] = str(len(found.damaged))
    return response


@routes.post(
    "/metrics/import",
    query=[
        text("table", "which table; without it its columns tell", tuple(TABLES)),
        text("format", "of the file: parquet without it", FORMATS),
        text("name", "what the file is called in messages"),
    ],
    body={"type": "string", "format": "binary"},
    body_types=list(_MEDIA.values()),
    answers={200: ImportedShape},
)
def import_metrics(query: Query) -> Response:
    """Take over all rows of a file, or none; those that are there already stay as they are."""
    chunks = stream(service().config.max_artifact)
    done = service().dataset.import_chunks(
        chunks, query["name"] or "the file", query["format"] or "parquet", query["table"]
    )
    return jsonify(done)
