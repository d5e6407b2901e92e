"""Sites: what they have, and what is used of it over the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from speck.analyzer.contracts import Contract
from speck.analyzer.memory import (
    HEAP_BINS,
    choose_state_factor,
    estimate_heap,
    measure_heap,
)
from speck.analyzer.unknowns import add, divide
from speck.model.values import JsonObject

SITES_POLLED = Contract(
    "polls of sites",
    {
        "site": "string",
        "tier": "string",
        "cores": "double",
        "core_speed": "double",  # null: not calibrated
        "slots_total": "int",
        "slots_free": "int",
        "host_cpu": "double",  # mean share of the machine
        "cpu": "double",  # CPU cores that the engine's processes used
        "seconds": "double",  # from the first poll to the last
        "uplink_mbps": "double",
        "last_at": "timestamp",  # the newest poll
        "bins": HEAP_BINS,
    },
)

NEWEST = ("tier", "cores", "core_speed", "slots_total", "slots_free", "uplink_mbps")
"""The columns of which the newest known value counts."""

SITE_FIELDS = (
    "site",
    *("tier", "cores", "core_speed", "slots_total", "slots_free", "host_cpu", "cpu"),
    "busy",  # busy core-seconds per second of all tasks, by wall time
    "uplink_mbps",
    "heap_bytes",  # used at the end of the window, without garbage
    "heap_max_bytes",
    "heap_bytes_per_subtask",  # None: the samples do not show it
    "heap_per_state_byte",
    "last_at",  # the newest poll
)


def add_use(polled: Iterable[JsonObject], rated: Sequence[JsonObject]) -> list[JsonObject]:
    """Rows of SITES_POLLED and all incarnations (`rates.rate_jobs`) -> what is used of each site:
    SITE_FIELDS."""
    return [
        _add_use(site, [job for job in rated if job["site"] == site["site"]]) for site in polled
    ]


def _add_use(site: JsonObject, jobs: Sequence[JsonObject]) -> JsonObject:
    heap = measure_heap(site["bins"])
    growth = add(job["state_bytes_per_s"] for job in jobs)
    factor = choose_state_factor(heap, growth)
    used = {
        **site,
        **heap,
        "busy": divide(add(job["busy_s"] for job in jobs), site["seconds"]),
        "heap_per_state_byte": factor,
        "heap_bytes": estimate_heap(heap, growth, factor, site["last_at"]),
    }
    return {name: used[name] for name in SITE_FIELDS}
