"""Which sites can run a job, by what their engines take and by the memory of their machines."""

from __future__ import annotations

import pytest

from speck.binding import kinds, machine_memory_mb
from speck.model.engines import ArtifactKind
from speck.model.site import AgentReport
from speck.sites.hosting import explain_shortage, explain_unfit
from speck.spec.site_schema import site_from_data
from tests.memory_fog import site_body

UNKNOWN = AgentReport()


@pytest.mark.parametrize(("gib", "fits"), [(0.9, False), (1.9, False), (3.6, True), (7.8, True)])
def test_spark_needs_a_machine_of_4_gb(gib: float, *, fits: bool) -> None:
    """One that was sold with so much reports less."""
    why = explain_shortage("spark", AgentReport(memory_bytes=int(gib * 2**30)))
    assert (why is None) is fits
    if not fits:
        assert why == (
            f"its machine has {gib} GB of memory, and an engine of kind spark needs one with 4 GB"
        )


def test_other_engines_run_anywhere_and_an_unknown_memory_refuses_nothing() -> None:
    assert {kind for kind in kinds("speck.engines") if machine_memory_mb(kind)} == {"spark"}
    assert explain_shortage("process", AgentReport(memory_bytes=256 << 20)) is None
    assert explain_shortage("spark", UNKNOWN) is None


def test_a_job_runs_only_where_an_engine_of_its_kind_takes_its_file() -> None:
    body = site_body("edge-a")
    flink = {"kind": "flink", "address": "http://edge-a:8081"}
    plain = site_from_data({**body, "spe": flink})
    programs = site_from_data({**body, "spe": {**flink, "beside": {"kind": "process"}}})
    spark = site_from_data({**body, "spe": {**flink, "beside": {"kind": "spark"}}})
    jar, program = ArtifactKind.JAR, ArtifactKind.PYFILE
    for site in (plain, programs, spark):
        assert explain_unfit("flink", jar, site, UNKNOWN) is None
    missing = "it has no engine of kind process for files of kind pyfile"
    assert explain_unfit("process", program, plain, UNKNOWN) == missing
    assert explain_unfit("process", program, spark, UNKNOWN) == missing
    assert explain_unfit("process", program, programs, UNKNOWN) is None
    assert explain_unfit("spark", program, spark, UNKNOWN) is None
    small = explain_unfit("spark", program, spark, AgentReport(memory_bytes=1 << 30))
    assert small == explain_shortage("spark", AgentReport(memory_bytes=1 << 30)) is not None
