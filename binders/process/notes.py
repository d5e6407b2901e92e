"""What a check of a site says of its runner."""

from __future__ import annotations

from binders.process.status import RunnerStatus
from speck.model.finding import Finding


def find_notes(status: RunnerStatus) -> list[Finding]:
    """Nothing of it loses data: a runner that is away is no finding but unreachable."""
    findings = []
    if not status.isolated:
        findings.append(
            Finding(
                "note",
                "users of programs",
                "one for all",
                "programs can read each other's files and credentials",
                "speck runner --as 61000-61199 (as root)",
            )
        )
    if not status.in_groups:
        findings.append(
            Finding(
                "note",
                "control groups of programs",
                "none",
                "memory is looked at once a second, so a program can take much more for a moment",
                "Delegate=yes in the runner's unit, or speck runner --cgroup FOLDER",
            )
        )
    return findings
