"""Whether a site can run a job: it has an engine of the job's kind, and the memory that this kind
needs. Pure."""

from __future__ import annotations

from speck.binding import artifact_kinds, find_taker, machine_memory_mb
from speck.model.engines import ArtifactKind
from speck.model.site import AgentReport, Site

REPORTED_SHARE = 7 / 8
"""What a machine reports of the memory that it was sold with: firmware and kernel keep the rest. A
Raspberry Pi of 4 GB reports 3.7 to 3.9."""


def explain_shortage(kind: str, report: AgentReport) -> str | None:
    """Why the machine of a site, by its agent's report, is too small for engines of a kind; None:
    it is not, or its memory is not known."""
    needed_mb, memory = machine_memory_mb(kind), report.memory_bytes
    if needed_mb is None or memory is None or memory >= needed_mb * REPORTED_SHARE * 2**20:
        return None
    return (
        f"its machine has {memory / 2**30:.1f} GB of memory, and an engine of kind {kind} needs one"
        f" with {needed_mb / 2**10:g} GB"
    )


def explain_unfit(kind: str, artifact: ArtifactKind, site: Site, report: AgentReport) -> str | None:
    """Why a job that an engine of a kind runs from such an artifact cannot run at another site;
    None: it can."""
    taker = find_taker(site.spe, artifact).kind
    if taker != kind or artifact not in artifact_kinds(taker):
        return f"it has no engine of kind {kind} for files of kind {artifact}"
    return explain_shortage(kind, report)
