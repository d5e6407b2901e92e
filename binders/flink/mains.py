"""Requests that run the `main` of a jar in the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binders.flink.jars import JarStore
from binders.flink.rest import FlinkRest, NoAnswerInTimeError, RefusedAnswer
from speck.binding import Submission
from speck.errors import MainTimeoutError


class Mains:
    """Runs `main` of the jars at one engine, for `main_s` seconds at most."""

    def __init__(self, rest: FlinkRest, jars: JarStore, main_s: float):
        self._rest = rest
        self._jars = jars
        self._main_s = main_s

    def run(
        self, submission: Submission, verb: str, options: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the `verb` of a submission's jar (`plan`, `run`); upload it again, once, if the
        engine has lost it. Raises MainTimeoutError, and the errors of `FlinkRest`."""
        file, sha256 = submission.artifact.file, submission.artifact.sha256
        jar = self._jars.put(file, sha256)
        try:
            return self._post(submission, f"/jars/{jar}/{verb}", options or {})
        except RefusedAnswer as answer:
            if not answer.refusal.jar_missing:
                raise
            jar = self._jars.put(file, sha256, missing=jar)
            return self._post(submission, f"/jars/{jar}/{verb}", options or {})

    def _post(self, submission: Submission, path: str, options: Mapping[str, Any]) -> Any:
        """If no answer comes in time from an engine that answers otherwise, `main` is the
        reason."""
        body = {
            "entryClass": submission.entry,
            "programArgsList": list(submission.args),
            "parallelism": submission.parallelism,
            "jobId": submission.engine_job_id,
            **options,
        }
        try:
            return self._rest.post(path, body, timeout_s=self._main_s)
        except NoAnswerInTimeError as error:
            self._rest.get("/overview")
            raise MainTimeoutError(
                f"cannot run main of {submission.job_name}: it did not return within"
                f" {self._main_s:g} s (SPECK_MAIN_TIMEOUT); its thread in the engine ends only when"
                " it does, or when the engine is restarted"
            ) from error
