"""The part of a site's check that looks at its agent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from speck.model.finding import Finding
from speck.model.site import AgentReport
from speck.sites.hosting import explain_shortage

_LOW_BYTES, _EMPTY_BYTES = 500 << 20, 50 << 20
_LEAST_AVAILABLE = 0.05
"""Share of a machine's memory that new programs could have; below it, little is left for bursts."""

MISSING = Finding(
    "warning",
    "agent",
    "none",
    "jobs can leave or enter the site only without their state",
    "run `speck agent` beside the engine, or set the label state_uri for shared storage",
)
"""What is wrong with a site that has no agent, and no storage that other sites read."""


def findings(
    report: AgentReport, silent_since: str | None, engine_folder: str | None, root: str
) -> list[Finding]:
    """What is wrong with an agent that reported `report` last, and with nothing else since
    `silent_since` (None: it is not silent). `engine_folder`: where the engine keeps its
    checkpoints, if it says so; `root`: the folder, below the agent's, where they should be."""
    silence = [] if silent_since is None else [_silence(silent_since)]
    return [
        *silence,
        *_folder_findings(report, engine_folder, root),
        *_listen_findings(report),
        *_memory_findings(report),
    ]


def find_shortages(report: AgentReport, engines: Iterable[str]) -> list[Finding]:
    """Engines of these kinds for which the machine is too small."""
    return [
        Finding(
            "error",
            "memory",
            f"{(report.memory_bytes or 0) >> 20} MB",
            f"{why}: no job is started on it",
            f"run jobs of kind {kind} at a larger site",
        )
        for kind in engines
        if (why := explain_shortage(kind, report)) is not None
    ]


def is_root(uri: str, folder: str, root: str) -> bool:
    """Whether `uri` is `<folder>/<root>`."""
    path = "/" + uri.removeprefix("file:").lstrip("/")
    return PurePosixPath(path) == PurePosixPath(folder) / root


def _silence(since: str) -> Finding:
    return Finding(
        "error",
        "agent",
        f"silent since {since}",
        "jobs with state can neither leave nor enter the site",
        "start it: systemctl start speck-agent",
    )


def _folder_findings(report: AgentReport, engine_folder: str | None, root: str) -> list[Finding]:
    findings = []
    reported = str(report.state_folder)
    if engine_folder is not None and not is_root(engine_folder, reported, root):
        findings.append(
            Finding(
                "error",
                "state-folder",
                reported,
                f"the engine keeps its checkpoints in {engine_folder}: the agent finds none",
                f"start the agent with --state-folder set to the folder that holds {root}/",
            )
        )
    free = report.free_bytes
    if free is not None and free < _LOW_BYTES:
        findings.append(
            Finding(
                "error" if free < _EMPTY_BYTES else "warning",
                "free disk",
                f"{free >> 20} MB",
                "without room neither checkpoints nor arriving state can be written",
                f"make room at {reported}",
            )
        )
    return findings


def _memory_findings(report: AgentReport) -> list[Finding]:
    total, available = report.memory_bytes, report.memory_available_bytes
    if total is None or available is None or available >= _LEAST_AVAILABLE * total:
        return []
    return [
        Finding(
            "warning",
            "memory available",
            f"{available >> 20} of {total >> 20} MB",
            "when none is left the kernel ends a program, which may be the engine or the broker",
            "move jobs to other sites, or stop other programs on the machine",
        )
    ]


def _listen_findings(report: AgentReport) -> list[Finding]:
    refused = report.refused_listen
    if refused is None:
        return []
    return [
        Finding(
            "warning",
            "listen",
            str(refused),
            "it is neither the host of the site's engine or broker nor in an allowed network: other"
            " agents are not sent there, and state travels through the service",
            "give --advertise an address on that host, or set SPECK_SITE_NETWORKS at the service",
        )
    ]
