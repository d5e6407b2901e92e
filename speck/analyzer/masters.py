"""Checks the Spark master of an analysis, without importing Spark."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from speck.errors import InvalidError, Problem

LOCAL = "local[*]"
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d{0,3})\])?")
_SPARK = re.compile(r"spark://[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*")
_K8S = re.compile(r"k8s://(https?://)?[\w.-]+(:\d{1,5})?")
YARN = "yarn"
_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*)=(.+)")


def check_master(master: str) -> str:
    """Return `master`. Raises InvalidError unless it is `local[n]`, `local[*]`,
    `spark://host:port`, `yarn` or `k8s://host:port`."""
    forms = (_LOCAL, _SPARK, _K8S)
    if master != YARN and not any(form.fullmatch(master) for form in forms):
        raise _invalid(
            f"{master!r} is not a Spark master: write local[2], local[*], spark://host:port, yarn"
            " or k8s://https://host:port"
        )
    return master


def is_local(master: str) -> bool:
    """Whether Spark runs within the analyzer's own JVM."""
    return _LOCAL.fullmatch(master) is not None


def is_standalone(master: str) -> bool:
    """Whether it is a standalone cluster, whose members share a secret; YARN and Kubernetes give
    each application one of its own."""
    return _SPARK.fullmatch(master) is not None


def is_on_loopback(master: str) -> bool:
    """Whether every host of the master is this machine, by an address of its loopback."""
    if not is_standalone(master):
        return is_local(master)
    hosts = (part.rpartition(":")[0] for part in master.removeprefix("spark://").split(","))
    return all(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class SparkMasters:
    """The masters that an administrator configured: an analysis runs at no other, since its driver
    would let the master of a stranger use this machine.

    Each entry is a master, or `NAME=master`.
    """

    entries: Sequence[str] = (LOCAL,)

    def choose(self, wanted: str | None) -> str:
        """The master for a request that names one, or the first; a local one may have fewer
        threads than the one configured. Raises InvalidError for one that is not configured."""
        by_name: dict[str, str] = {}
        for entry in self.entries:
            named = _NAMED.fullmatch(entry)
            master = check_master(named[2] if named else entry)
            by_name.setdefault(named[1] if named else master, master)
        if wanted is None:
            return next(iter(by_name.values()))
        if wanted in by_name:
            return by_name[wanted]
        if wanted in by_name.values():
            return wanted
        threads = _count_threads(check_master(wanted))
        most = max((_count_threads(master) for master in by_name.values()), default=0)
        if 0 < threads <= most:
            return wanted
        raise _invalid(
            f"{wanted!r} is not among the masters of this service ({', '.join(by_name)});"
            " an administrator adds one with SPECK_SPARK_MASTERS"
        )


def _count_threads(master: str) -> int:
    """The threads of a local master; 0 for a cluster."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return 0
    if match[1] is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def _invalid(fault: str) -> InvalidError:
    return InvalidError(f"cannot analyse: {fault}", [Problem("master", fault)])
