"""/metrics/export and /metrics/import: the metrics dataset as files"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.access import reach
from speck.api.context import occupying, service
from speck.api.downloads import sending
from speck.api.requests import Query, moment, stream, text
from speck.api.routes import Routes, answer
from speck.errors import ForbiddenError
from speck.metrics.dataset.parsing import FORMATS
from speck.metrics.dataset.schema import TABLES, TASKS

routes = Routes("dataset", "The metrics dataset as files")

_MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "jsonl": "application/jsonl",
}


@routes.get(
    "/metrics/export",
    query=[
        text("table", "the table; tasks by default", tuple(TABLES)),
        text("format", "format of the file; parquet by default", FORMATS),
        moment("since", "rows of this time or later (RFC 3339)"),
        moment("until", "rows before this time (RFC 3339)"),
        text("composition", "only rows of this composition; _alone for jobs posted alone"),
    ],
    answers={200: {"type": "string", "format": "binary"}},
    answer_type=_MEDIA["parquet"],
    other_types=[_MEDIA[form] for form in FORMATS if form != "parquet"],
)
def export_metrics(query: Query) -> Response:
    """One table of the metrics as a file. The header X-Rows holds its number of rows, X-Damaged
    the number of dataset files that could not be read."""
    table, form = query["table"] or TASKS.name, query["format"] or "parquet"
    if reach().limited:
        _refuse_others(table, query["composition"])
    with sending(f"the {table}") as send:
        with occupying(f"export {table}"):
            export = service().dataset.export(
                table, form, query["since"], query["until"], query["composition"]
            )
        response = send(export.content, export.size, _MEDIA[form])
    response.headers["Content-Disposition"] = f'attachment; filename="{table}.{form}"'
    response.headers["X-Rows"] = str(export.rows)
    response.headers["X-Damaged"] = str(len(export.damaged))
    return response


def _refuse_others(table: str, composition: str | None) -> None:
    """For a token that is limited in its scopes: only the rows of one composition."""
    if composition is None or "composition" not in TABLES[table].partitions:
        raise ForbiddenError(
            f"cannot export {table} with a token that is limited in its scopes: name a"
            " composition, and a table with rows of compositions"
        )
    reach().require_composition(composition)


@routes.post(
    "/metrics/import",
    query=[
        text("table", "the table; by default it is inferred from the columns", tuple(TABLES)),
        text("format", "format of the file; parquet by default", FORMATS),
        text("name", "name of the file in messages"),
    ],
    body={"type": "string", "format": "binary"},
    body_types=list(_MEDIA.values()),
    answers={200: shapes.ImportedShape},
)
def import_metrics(query: Query) -> Response:
    """Import all rows of a file, or none; rows that exist already are left unchanged."""
    chunks = stream(service().config.max_artifact)
    name = query["name"] or "the file"
    with occupying(f"import {name}"):
        report = service().dataset.import_chunks(
            chunks, name, query["format"] or "parquet", query["table"]
        )
    return answer(report)
