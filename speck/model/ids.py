"""The ids by which engines and brokers know our jobs."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

from speck.model.link import Link

_LONG_TOPIC = 256
"""Links with longer topics are not remembered: a topic may have 64 KiB."""


def link_hash(link: Link) -> str:
    """The 8 hex digits that stand for a link in a client id. They hash the site's name, not an
    address: a session and the numbers of a sink outlive a change of the broker's address."""
    return _remembered_hash(link) if len(link.topic) <= _LONG_TOPIC else _compute_hash(link)


def _compute_hash(link: Link) -> str:
    return _hash(f"{link.site}|{link.topic}", 8)


_remembered_hash = lru_cache(1 << 16)(_compute_hash)

OUTSIDE_READER = "speck-out-"
"""The beginning of client ids of outside readers that no program without speck would choose."""


def source_client_id(installation: str, job_name: str, source: Link) -> str:
    """The client id of a job's reader on one link; it identifies the session, too."""
    if len(source.topic) > _LONG_TOPIC:
        return _source_client_id(installation, job_name, source)
    return _remembered_client_id(installation, job_name, source)


def _source_client_id(installation: str, job_name: str, source: Link) -> str:
    return f"speck-{installation[:8]}-{job_name}-{link_hash(source)}"


_remembered_client_id = lru_cache(1 << 16)(_source_client_id)


def sink_client_id(installation: str, job_name: str, source: Link, sink: Link) -> str:
    """The client id of a job's sink on one link, which names the link to what an earlier
    incarnation has left to send (`Committable` of the connector), whatever its address is now."""
    if max(len(source.topic), len(sink.topic)) > _LONG_TOPIC:
        return _sink_client_id(installation, job_name, source, sink)
    return _remembered_sink_id(installation, job_name, source, sink)


def _sink_client_id(installation: str, job_name: str, source: Link, sink: Link) -> str:
    ends = _hash(f"{link_hash(source)}|{link_hash(sink)}", 8)
    return f"speck-{installation[:8]}-{job_name}-{ends}-out"


_remembered_sink_id = lru_cache(1 << 16)(_sink_client_id)


def engine_job_id(
    installation: str, composition: str, job_name: str, generation: int, attempt: int
) -> str:
    """The engine's id of one incarnation: 32 hex digits, computed before the request is sent.

    They are 6 digits of the installation, 10 of the job, 11 of the generation of the store and 5
    of the attempt, so that a restored service recognizes what was started after the backup (see
    `EngineJobId`). A generation and an attempt beyond these digits raise ValueError.
    """
    if not (0 <= generation < 16**11 and 0 <= attempt < 16**5):
        raise ValueError(f"cannot make an id of generation {generation}, attempt {attempt}")
    job = job_digits(installation, composition, job_name)
    return f"{_hash(installation, 6)}{job}{generation:011x}{attempt:05x}"


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


class EngineJobId(NamedTuple):
    """The parts of an engine job id of this installation: which `job` (10 hex digits), and which
    of its incarnations. Of two of a job, the one with the higher `order` was started later."""

    job: str
    generation: int
    attempt: int

    @property
    def order(self) -> tuple[int, int]:
        return self.generation, self.attempt

    @classmethod
    def parse(cls, engine_job_id: str, installation: str) -> EngineJobId | None:
        """The parts of an id, or None if it is not of this installation."""
        digits = re.fullmatch(
            r"([0-9a-f]{6})([0-9a-f]{10})([0-9a-f]{11})([0-9a-f]{5})", engine_job_id
        )
        if digits is None or digits[1] != _hash(installation, 6):
            return None
        return cls(digits[2], int(digits[3], 16), int(digits[4], 16))


def job_digits(installation: str, composition: str, job_name: str) -> str:
    """The part of a job's engine job ids that all its incarnations share."""
    return _hash(f"{installation}|{composition}|{job_name}", 10)


def producer_epoch(generation: int, attempt: int) -> int:
    """The epoch of the sequence numbers of one incarnation's sink. It is the attempt in the first
    generation, and higher than all earlier ones after a restore, whose attempts may repeat those
    of incarnations that were started after the backup: generations are milliseconds, and no start
    takes less. Sinks shift it by 22 bits, which 64 bits have room for until 2089."""
    return generation - 1 + attempt
