"""Renders a placement for people: today's sites beside the proposed ones."""

from __future__ import annotations

from collections.abc import Iterator

from speck.cli.messages import clean
from speck.cli.output import Grid
from speck.model.values import JsonObject


def changes_anything(placement: JsonObject) -> bool:
    """Whether applying the placement would change anything."""
    is_scaled = any(each["from"] != each["to"] for each in placement["scales"])
    return bool(placement["proposed"]["moves"] or placement["rewired"] or is_scaled)


def render(placement: JsonObject) -> list[object]:
    """Render the jobs, the sites, then the gain and the problems."""
    today, proposed = placement["today"], placement["proposed"]
    return [
        Grid(
            ("job", "today", "proposed", "why"),
            [
                (name, site, _now(site, proposed["sites"][name]), _why(placement, name))
                for name, site in today["sites"].items()
            ],
            f"{placement['composition']} by {placement['policy']} ({_name_analysis(placement)})",
        ),
        "",
        Grid(
            (
                "site",
                "busy today",
                "proposed",
                "cores today",
                "proposed",
                "memory needed",
                "available",
            ),
            [_describe_site(placement, site) for site in sorted(proposed["utilisation"])],
        ),
        "",
        *_lines(placement),
    ]


def _name_analysis(placement: JsonObject) -> str:
    analysis = placement["analysis"]
    return "nothing was measured" if analysis is None else f"analysis {analysis}"


def render_scales(placement: JsonObject) -> list[object]:
    """Render how many subtasks each measured job has and is to have."""
    return [
        Grid(
            ("job", "site", "subtasks", "proposed", "records/s", "capacity", "why"),
            [
                (
                    each["job_name"],
                    each["site"],
                    each["from"],
                    _now(str(each["from"]), str(each["to"])),
                    f"{each['in_rate']:.4g}",
                    f"{each['true_processing_rate']:.4g}",
                    each["reason"],
                )
                for each in placement["scales"]
            ],
            f"{placement['composition']} (analysis {placement['analysis']})",
            empty="no job was measured well enough",
        ),
        *(
            clean(f"{name}: needs more evidence: {why}")
            for name, why in placement["doubts"].items()
        ),
    ]


def _describe_site(placement: JsonObject, site: str) -> tuple[str | None, ...]:
    """What a site's engine uses today and as proposed; the memory that jobs need as proposed."""
    today, proposed = placement["today"], placement["proposed"]
    return (
        site,
        share(today["utilisation"].get(site)),
        share(proposed["utilisation"][site]),
        _figure(today["cores"].get(site), 1.0, ".2f"),
        _figure(proposed["cores"][site], 1.0, ".2f"),
        _figure(proposed["memory_bytes"][site], 1e6, ".0f", " MB"),
        _figure(placement["memory_available_bytes"][site], 1e6, ".0f", " MB"),
    )


def _figure(value: float | None, unit: float, form: str, name: str = "") -> str | None:
    return None if value is None else f"{value / unit:{form}}{name}"


def _now(before: str, after: str) -> str:
    return after if after == before else f"→ {after}"


def _why(placement: JsonObject, name: str) -> str:
    doubt, difference = placement["doubts"].get(name), placement["differences"].get(name)
    parts = [
        placement["reasons"].get(name, ""),
        difference or "",
        f"needs more evidence: {doubt}" if doubt else "",
    ]
    return "; ".join(filter(None, parts))


def _lines(placement: JsonObject) -> Iterator[str]:
    today, proposed, gain = placement["today"], placement["proposed"], placement["gain"]
    yield (
        f"between sites: {rate(today['wan_bytes_per_s'])} → {rate(proposed['wan_bytes_per_s'])}"
        f"{_describe_gain(gain['share'])}"
    )
    if today["latency_ms"] is not None or proposed["latency_ms"] is not None:
        yield f"latency: {_ms(today['latency_ms'])} → {_ms(proposed['latency_ms'])}"
    if today["max_rate"] is not None or proposed["max_rate"] is not None:
        yield f"highest rate: {_records(today)} → {_records(proposed)}"
    for link in placement["rewired"]:
        yield clean(f"topic {link['topic']}: broker of {link['from']} → {link['to']}")
    if placement["gap"]:
        yield f"stopped early: the optimum is at most {placement['gap']:.1%} better"
    for note in placement["notes"]:
        yield clean(f"note: {note}")
    for limit in today["violations"]:
        if limit not in placement["violations"]:
            yield clean(f"today: {limit}")
    yield from list_violations(placement)


def list_violations(placement: JsonObject) -> Iterator[str]:
    """The limits that the proposed placement exceeds, a line for each."""
    return (clean(f"exceeded: {limit}") for limit in placement["violations"])


def rate(bytes_per_s: float | None) -> str:
    """Bytes per second in a suitable unit."""
    if bytes_per_s is None:
        return "not known"
    size, units = float(bytes_per_s), ["B/s", "kB/s", "MB/s", "GB/s"]
    while abs(size) >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}" if size < 999.5 else f"{size:.0f} {units[0]}"


def share(part: float | None) -> str | None:
    """A share (0 to 1) in per cent."""
    return None if part is None else f"{part:.0%}"


def _describe_gain(part: float | None) -> str:
    """What part of today's bytes is saved; nothing if there are none, or as many are proposed."""
    if part is None or part == 0:
        return ""
    return f" ({abs(part):.0%} {'saved' if part > 0 else 'more'})"


def _ms(latency: float | None) -> str:
    return "not known" if latency is None else f"{latency:.3g} ms"


def _records(side: JsonObject) -> str:
    if side["max_rate"] is None:
        return "not known"
    return f"{side['max_rate']:.4g} records/s (limited by {side['held_by']})"
