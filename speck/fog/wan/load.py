"""Reads a WAN from a YAML file; every fault is reported with its path and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speck.errors import InvalidError, PermanentError, Problem
from speck.fog.wan.model import EVERYWHERE, LEAST_MBPS, MOST_LATENCY_MS, MOST_MBPS, Uplink, Wan
from speck.model.values import is_name
from speck.spec.yaml_loader import Document, load

_RATES = ("up_mbps", "down_mbps")
_UPLINK = (*_RATES, "latency_ms")
_KEYS = ("uplinks", "lans", "host")


def load_wan(path: Path | str) -> Wan:
    """Read a WAN: `uplinks` (site -> up_mbps, down_mbps, latency_ms; a rate that is absent or null
    is unlimited), `lans` (lists of sites), `host` (`everywhere` or a site).

    Raises PermanentError when the file cannot be read, InvalidError naming all faults in it.
    """
    try:
        document = load(Path(path).read_bytes())
    except OSError as error:
        raise PermanentError(f"cannot read the WAN {path}: {error.strerror}") from error
    problems = [
        Problem(where, message, document.line_of(where))
        for where, message in _find_faults(document)
    ]
    if problems:
        raise InvalidError(f"cannot use the WAN {path}", problems)
    data = document.data
    uplinks = {
        site: Uplink(
            values.get("up_mbps"), values.get("down_mbps"), float(values.get("latency_ms", 0))
        )
        for site, values in (data.get("uplinks") or {}).items()
    }
    lans = tuple(tuple(lan) for lan in data.get("lans") or [])
    return Wan(uplinks, lans, data.get("host", EVERYWHERE))


def _find_faults(document: Document) -> Iterator[tuple[str, str]]:
    data = document.data
    if not isinstance(data, dict):
        yield "", "must be a mapping with `uplinks`, and perhaps `lans` and `host`"
        return
    for key in data:
        if key not in _KEYS:
            yield key, f"unknown; a WAN has {', '.join(_KEYS)}"
    uplinks = data.get("uplinks")
    if not isinstance(uplinks, dict) or not uplinks:
        yield "uplinks", "must be a mapping from a site to its up_mbps, down_mbps and latency_ms"
    else:
        for site, values in uplinks.items():
            yield from _find_uplink_faults(site, values)
    yield from _find_lan_faults(data.get("lans", []))
    host = data.get("host", EVERYWHERE)
    if not isinstance(host, str) or not is_name(host):
        yield "host", f"must be `{EVERYWHERE}` or the name of a site"


def _find_uplink_faults(site: str, values: Any) -> Iterator[tuple[str, str]]:
    where = f"uplinks.{site}"
    if not is_name(site):
        yield where, "is not the name of a site"
    if not isinstance(values, dict):
        yield where, f"must be a mapping with {', '.join(_UPLINK)}"
        return
    for key, value in values.items():
        if key not in _UPLINK:
            yield f"{where}.{key}", f"unknown; an uplink has {', '.join(_UPLINK)}"
        elif key in _RATES:
            if value is not None and not _is_number(value, LEAST_MBPS, MOST_MBPS):
                yield (
                    f"{where}.{key}",
                    f"must be a number of Mb/s from {LEAST_MBPS:g} to {MOST_MBPS:g}"
                    " (omit it for no limit)",
                )
        elif not _is_number(value, 0, MOST_LATENCY_MS):
            yield f"{where}.{key}", f"must be a number of ms from 0 to {MOST_LATENCY_MS:g}"


def _find_lan_faults(lans: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(lans, list):
        yield "lans", "must be a list of lists of sites"
        return
    seen: set[str] = set()
    for number, lan in enumerate(lans):
        where = f"lans[{number}]"
        if not isinstance(lan, list) or len(lan) < 2:
            yield where, "must be a list of two sites or more"
            continue
        for place, site in enumerate(lan):
            if not isinstance(site, str) or not is_name(site):
                yield f"{where}[{place}]", "is not the name of a site"
            elif site in seen:
                yield f"{where}[{place}]", f"{site} is in a LAN already; a site has one"
            else:
                seen.add(site)


def _is_number(value: Any, minimum: float, maximum: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and minimum <= value <= maximum
    )
