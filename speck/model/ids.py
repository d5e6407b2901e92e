"""The ids by which engines and brokers know our jobs."""

from __future__ import annotations

import hashlib

from speck.model.link import Link


def link_hash(link: Link) -> str:
    """The 8 hex digits that stand for a link in a client id."""
    return hashlib.sha256(f"{link.broker}|{link.topic}".encode()).hexdigest()[:8]


OUTSIDE_READER = "speck-out-"
"""The beginning of client ids of outside readers that no program without speck would choose."""


def source_client_id(installation: str, job_name: str, source: Link) -> str:
    """The MQTT client id of a job's reader on one link; it identifies the session, too."""
    return f"speck-{installation[:8]}-{job_name}-{link_hash(source)}"


def sink_client_id(installation: str, job_name: str, source: Link) -> str:
    """The MQTT client id of a job's sink."""
    return source_client_id(installation, job_name, source) + "-out"


def engine_job_id(installation: str, composition: str | None, job_name: str, attempt: int) -> str:
    """The engine's id of one incarnation: 32 hex digits, computed before the request is sent."""
    text = "|".join((installation, composition or "", job_name, str(attempt)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
