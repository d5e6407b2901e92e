"""Random requests, alone and in sequences that follow the links of the OpenAPI document: every
response is one that the document describes, and none is an internal error."""

from __future__ import annotations

import collections
import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from speck.api.app import create_app
from speck.service.analysis_runs import AnalysisRuns
from tests.unit.api.bench import job, open_bench

CASES = 20_000
STEPS = 25
ADMIN = "administrator"
REFUSALS = {400, 401, 403, 404, 405, 409, 411, 412, 413, 415, 422, 502, 503, 504, 507}
"""The statuses of problems. The document has them as `default`."""


def _only_known_statuses(_: Any, response: Response, case: Case) -> None:
    documented = set(case.operation.definition.raw["responses"])
    assert str(response.status_code) in documented or response.status_code in REFUSALS


CHECKS = [
    _only_known_statuses,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_HASTY = settings(
    deadline=None,
    database=None,
    derandomize=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Log:
    """Statuses of all responses, and how often each came, by operation."""

    def __init__(self) -> None:
        self.statuses: collections.Counter[tuple[str, int]] = collections.Counter()

    @property
    def cases(self) -> int:
        return self.statuses.total()

    def add(self, case: Case, response: Response) -> None:
        self.statuses[case.operation.label, response.status_code] += 1

    def __str__(self) -> str:
        return f"{self.cases} cases: " + ", ".join(
            f"{label} {status}: {count}" for (label, status), count in sorted(self.statuses.items())
        )


def _refuse(*_: Any) -> None:
    raise ConnectionRefusedError("random addresses are not called")


def _fail(*_: Any) -> tuple[str, str]:
    return "failed", "cannot find any samples"


@schemathesis.serializer(
    "application/java-archive",
    "application/vnd.apache.parquet",
    "application/jsonl",
    "text/csv",
)
def _serialize(_: Any, value: Any) -> bytes:
    """A file as it is."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def _descriptions(body: Any) -> Iterator[dict[str, Any]]:
    """The jobs that a body describes."""
    if isinstance(body, dict):
        jobs = body.get("jobs")
        for item in (body, *(jobs if isinstance(jobs, list) else ())):
            if isinstance(item, dict) and "sink_topic" in item:
                yield item


class Api:
    """The document of the API, and an application over memory sites that can be begun anew."""

    def __init__(self, folder: Path):
        self._folders = (folder / str(number) for number in itertools.count())
        self._open = ExitStack()
        self.begin_anew()
        self.schema = schemathesis.openapi.from_wsgi("/openapi.json", self._call)

    def begin_anew(self) -> None:
        """Continue with an application that has three sites and one administrator's token."""
        self.close()
        folder = next(self._folders)
        folder.mkdir()
        bench = self._open.enter_context(open_bench(folder))
        bench.add_sites()
        self._secret = bench.service.tokens.add(ADMIN, "admin")
        self._app = create_app(bench.service)

    def close(self) -> None:
        """End the application."""
        self._open.close()

    def prepare(self, case: Case) -> None:
        """Authorize a request, leave its token alone, and let a valid `?wait=` be short."""
        case.headers["Authorization"] = f"Bearer {self._secret}"
        if case.path_parameters.get("name") == ADMIN:
            case.path_parameters["name"] = "other"
        for description in _descriptions(case.body):
            if len(str(description)) % 2:  # the others are refused at their first field
                description.update(job("any") | {"job_name": str(description.get("job_name"))})
        with suppress(KeyError, TypeError, ValueError):
            case.query["wait"] = str(min(float(case.query["wait"]), 1.0))

    def _call(self, environ: Any, start_response: Any) -> Any:
        return self._app(environ, start_response)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Nothing reaches a network, and no analysis starts Spark."""
    monkeypatch.setattr(socket.socket, "connect", _refuse)
    monkeypatch.setattr(AnalysisRuns, "_analyse", _fail)
    api = Api(tmp_path)
    yield api
    api.close()


@pytest.mark.long
def test_each_response_to_a_random_request_is_in_the_document(api: Api) -> None:
    log = Log()
    operations = [result.ok() for result in api.schema.get_all_operations()]
    each = CASES // len(operations)  # those without parameters have few cases
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(_HASTY, max_examples=each)
        def check(case: Case) -> None:
            if log.cases % 100 == 0:
                api.begin_anew()
            api.prepare(case)
            response = case.call()
            log.add(case, response)
            case.validate_response(response, checks=CHECKS)

        check()
    print(log)
    assert log.cases >= CASES // 2


@pytest.mark.long
def test_each_response_in_a_random_sequence_is_in_the_document(api: Api) -> None:
    log = Log()

    class Sequence(api.schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            api.begin_anew()

        def before_call(self, case: Case) -> None:
            api.prepare(case)

        def after_call(self, response: Response, case: Case) -> None:
            log.add(case, response)

        def validate_response(self, response: Response, case: Case, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    steps = settings(_HASTY, max_examples=CASES // STEPS, stateful_step_count=STEPS)
    Sequence.run(settings=steps)
    print(log)
    assert log.cases >= CASES // 2
