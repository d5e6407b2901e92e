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
                "speck runner --as 61000-61183 (as root)",
            )
        )
    if not status.in_groups:
        findings.append(
            Finding(
                "note",
                "memory of programs",
                "looked at once a second",
                "a program can take much more than its limit for a moment",
                "DelegateSubgroup=runner in the runner's unit (systemd 254), or speck runner"
                " --cgroup FOLDER",
            )
        )
    return findings
