"""Links: a topic at the broker of a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Link(NamedTuple):
    """A (site, topic): joins the sink of some jobs to the source of others. A site's name stays
    when the address of its broker changes. A tuple, whose hash costs little: links are the keys of
    most indexes.

    In a graph made without the registered sites (`speck.spec.topology`) it holds the broker as its
    user wrote it, by site or by address.
    """

    site: str
    topic: str

    def __str__(self) -> str:
        return f"{self.site}/{self.topic}"


@dataclass(frozen=True, slots=True, order=True)
class JobLinks:
    """The links that a job joins."""

    job_name: str
    source: Link
    port: tuple[Link, ...]
