"""A job as it is planned and stored, for tests that need one."""

from typing import Any

from speck.model.engines import ArtifactKind
from speck.model.job import Job
from speck.model.link import Link

LINK = Link("a", "T-1")


def make_job(name: str, source: Link, sink: Link, site: str | None = None, **more: Any) -> Job:
    """A job at the site of its source, or at another one; brokers are named as their sites."""
    values = {
        "source_broker": f"tcp://{source.site}:1883",
        "sink_broker": f"tcp://{sink.site}:1883",
        "entry_class": "x.A",
        "artifact": "f" * 64,
        "artifact_kind": ArtifactKind.JAR,
        **more,
    }
    return Job(job_name=name, site=site or source.site, source=source, sink=sink, **values)


JOB = make_job("A", LINK, Link("a", "T-2"))
