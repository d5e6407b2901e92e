"""Calls that export and import files of metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from speck.client.transport import Content, Transport
from speck.client.uploads import LONG_S, FileBody
from speck.model.values import JsonObject


class MetricsCalls(Transport):
    """The part of the client that transfers metrics."""

    def export_metrics(
        self, table: str, form: str, **filters: str | None
    ) -> tuple[int, int, Content]:
        """A table of the metrics as a file: the number of its rows, the number of damaged files in
        the dataset, and its content; the filters are since, until and composition."""
        answer = self._call(
            "GET",
            "/metrics/export",
            query={"table": table, "format": form, **filters},
            answer_s=LONG_S,
            stream=True,
            headers={"Accept": "*/*"},
        )
        numbers = [answer.headers.get(name, "") for name in ("X-Rows", "X-Damaged")]
        if not all(re.fullmatch(r"[0-9]{1,18}", number) for number in numbers):
            raise self._foreign_error(answer)
        rows, damaged = map(int, numbers)
        return rows, damaged, self._content(answer, "export")

    def import_metrics(
        self,
        file: Path,
        form: str,
        table: str | None = None,
        on_sent: Callable[[int], object] | None = None,
    ) -> JsonObject:
        """Import a file: `{table, rows, new, since, until, warnings}`. `on_sent` is called
        with the size of each chunk."""
        with file.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            return self._json(
                "POST",
                "/metrics/import",
                query={"format": form, "table": table, "name": file.name},
                data=FileBody(stream, length, on_sent),
                headers={"Content-Type": "application/octet-stream"},
                answer_s=LONG_S,
            )
