"""What makes two jobs the same: everything that a running incarnation was started with.

The jar counts by its content. `state`, `pinned` and `upgrade` rule what speck does with a job,
not what runs, so they do not count; neither does the order of jobs in a composition.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple

from speck.model.job import Job, Sending
from speck.model.link import Link

_FIELDS = (
    "site",
    "spe_address",
    "source",
    "sink",
    "entry_class",
    "jar",
    "args",
    "parallelism",
    "delivery",
)


def fingerprint(job: Job) -> str:
    """SHA-256 (hex) over the fields that matter, in a canonical form."""
    content = {
        name: astuple(value) if isinstance(value := getattr(job, name), Link) else value
        for name in _FIELDS
    }
    if job.link != Sending():  # jobs from before there was such a thing are what they were
        content["link"] = astuple(job.link)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(old: Job, new: Job) -> list[str]:
    """What changed from `old` to `new`, in words; empty exactly when they are the same."""
    found = []
    if old.site != new.site:
        found.append(f"site {old.site} -> {new.site}")
    elif old.spe_address != new.spe_address:
        found.append(f"engine {old.spe_address} -> {new.spe_address}")
    if old.source != new.source:
        found.append(
            f"source {old.source_site}/{old.source.topic} -> {new.source_site}/{new.source.topic}"
        )
    if old.sink != new.sink:
        found.append(f"sink {old.sink_site}/{old.sink.topic} -> {new.sink_site}/{new.sink.topic}")
    if old.jar != new.jar:
        found.append(f"jar {old.jar[:8]} -> {new.jar[:8]}")
    if old.entry_class != new.entry_class:
        found.append(f"entry_class {old.entry_class} -> {new.entry_class}")
    if old.args != new.args:
        found.append("args changed")
    if old.parallelism != new.parallelism:
        found.append(f"parallelism {old.parallelism} -> {new.parallelism}")
    if old.delivery != new.delivery:
        found.append(f"delivery {old.delivery} -> {new.delivery}")
    if old.link != new.link:
        found.append("link changed")
    return found
