"""Links: a topic at a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A (broker, topic): joins the sink of some jobs to the source of others."""

    broker: str
    topic: str

    def __str__(self) -> str:
        return f"{self.broker}/{self.topic}"


@dataclass(frozen=True, slots=True, order=True)
class JobLinks:
    """The links that a job joins, as (site of the broker, topic): a site's name stays when its
    addresses change."""

    job_name: str
    source: tuple[str, str]
    sink: tuple[str, str]
