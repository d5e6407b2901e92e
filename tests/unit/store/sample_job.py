"""A job as it is stored, for tests of the store."""

from speck.model.engines import ArtifactKind
from speck.model.job import Job
from speck.model.link import Link

LINK = Link("a", "T-1")
JOB = Job(
    "A",
    "a",
    LINK,
    Link("a", "T-2"),
    "tcp://a:1883",
    "tcp://a:1883",
    "x.A",
    "f" * 64,
    ArtifactKind.JAR,
)
