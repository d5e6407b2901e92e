"""Arguments of jobs that refer to secrets of their site."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.errors import EngineRefusedError, InvalidError, SpeckError
from speck.service import Service
from speck.service.jobs import JobOutcome
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, LIMIT_S, composition, engine, job, job_body

VALUE = "s3cr3t-of-edge-a"
ARGS = ["--key", "{secret:api-key}", "--text={{secret:api-key}}"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """edge-a has a secret, edge-b has credentials without it, cloud has none."""
    folder = tmp_path / "home" / "credentials"
    folder.mkdir(parents=True)
    for name, line in (("edge-a", f"secret.api-key = {VALUE}\n"), ("edge-b", "")):
        file = folder / name
        file.write_text(f"user=speck\npassword=hush\n{line}")
        file.chmod(0o600)
    sites = []
    for name in ("edge-a", "edge-b", "cloud"):
        site = site_body(name)
        if name != "cloud":
            site["broker"] = {**site["broker"], "credentials": name}
        sites.append(site)
    with memory_service(tmp_path, sites) as opened:
        yield opened


def _stored(service: Service) -> str:
    return str(dict(service.records.store.scan("")))


def test_a_secret_reaches_the_job_and_nothing_else(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    done = service.compositions.apply(composition(job_body("A", args=ARGS)), DONE)
    assert done.state == "done"
    (running,) = engine("edge-a").running()
    assert running.submission.args[-3:] == ("--key", VALUE, "--text={secret:api-key}")
    assert VALUE not in _stored(service) + str(done) + caplog.text
    assert service.jobs.get("A").description.args == tuple(ARGS)
    again = service.compositions.apply(composition(job_body("A", args=ARGS)), DONE)
    assert again.plan.operations == ()


@pytest.mark.parametrize(
    ("args", "site", "says"),
    [
        (["{secret:other}"], "edge-a", "cannot use {secret:other} at site edge-a: it has the"),
        (["{secret:password}"], "edge-a", "cannot use {secret:password} at site edge-a"),
        (ARGS, "edge-b", "credentials 'edge-b' without it; put secret.api-key=... into"),
        (ARGS, "cloud", "cannot use {secret:api-key} at site cloud: it has no credentials"),
        (["{secret:}"], "edge-a", "{secret:} names no secret"),
        (["{secret:a b}"], "edge-a", "{secret:a b} names no secret"),
        (["{secret:" + "x" * 9000 + "}"], "edge-a", "xxx...xxx"),
    ],
)
def test_a_secret_that_is_not_there_is_refused_before_anything_moves(
    service: Service, args: list[str], site: str, says: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        service.compositions.apply(composition(job_body("A", site, args=args)), DONE)
    (problem,) = refused.value.problems
    assert problem.path.startswith("jobs[0].args") and says in problem.message
    assert "hush" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_an_engine_that_repeats_a_secret_does_not_have_it_stored(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    error = EngineRefusedError(f"cannot start: the option --key={VALUE} is unknown")
    engine("edge-a").refuse("submit", 1, error)
    with pytest.raises(SpeckError) as refused:
        service.jobs.post(job("A", args=ARGS), LIMIT_S)
    assert "--key={secret:api-key} is unknown" in str(refused.value)
    assert VALUE not in str(refused.value) + _stored(service) + caplog.text


def test_a_job_is_removed_after_its_secret(service: Service, tmp_path: Path) -> None:
    service.jobs.post(job("A", args=ARGS), LIMIT_S)
    (tmp_path / "home" / "credentials" / "edge-a").unlink()
    assert service.jobs.delete("A", LIMIT_S) == JobOutcome()
