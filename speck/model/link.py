"""Links: a topic at a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Link(NamedTuple):
    """A (broker, topic): joins the sink of some jobs to the source of others. A tuple, whose hash
    costs little: links are the keys of most indexes."""

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
