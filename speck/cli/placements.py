"""Renders a placement for people: today's sites beside the proposed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speck.cli.messages import clean
from speck.cli.output import Grid
from speck.model.values import JsonObject
from speck.placement.figures import describe_duration, describe_rate, describe_size
from speck.placement.sentences import LEGEND, explain, summarise


def changes_anything(placement: JsonObject) -> bool:
    """Whether applying the placement would change anything."""
    is_scaled = any(each["from"] != each["to"] for each in placement["scales"])
    return bool(placement["proposed"]["moves"] or placement["rewired"] or is_scaled)


def render(placement: JsonObject) -> list[object]:
    """Render the jobs, why, the sites, the whole, and what the columns mean."""
    title = f"{placement['composition']} by {placement['policy']} ({_name_analysis(placement)})"
    return [
        Grid(
            _HEADINGS,
            map(_describe_job, placement["jobs"]),
            title,
            dispensable=("than at", "paid off", "costs", "confidence"),
        ),
        *render_reasons(placement),
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
            [
                _describe_site(placement, site)
                for site in sorted(placement["proposed"]["utilisation"])
            ],
        ),
        "",
        *map(clean, summarise(placement)),
        "",
        *render_legend(LEGEND),
    ]


_HEADINGS = ("job", "today", "proposed", "saves", "than at", "costs", "paid off", "confidence")


def _describe_job(row: JsonObject) -> tuple[str | None, ...]:
    saved, cost, paid = (row[n] for n in ("saved_bytes_per_s", "cost_bytes", "break_even_s"))
    return (
        row["job_name"],
        row["site"],
        _now(row["site"], row["proposed"]),
        None if saved is None else describe_rate(saved),
        row["compared_with"],
        None if cost is None else describe_size(cost),
        None if paid is None else f"after {describe_duration(paid)}",
        row["confidence"],
    )


def render_reasons(placement: JsonObject) -> list[object]:
    """Render each reason once, with its jobs."""
    reasons = explain(placement)
    return ["", "Why", *(f"  {clean(reason)}" for reason in reasons)] if reasons else []


def render_legend(legend: Mapping[str, str]) -> Iterator[str]:
    """Render what columns mean."""
    return (f"{column}: {meaning}" for column, meaning in legend.items())


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
            clean(f"{name}: too little evidence: {why}")
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


def list_violations(placement: JsonObject) -> Iterator[str]:
    """The limits that the proposed placement exceeds, a line for each."""
    return (clean(f"exceeded: {limit}") for limit in placement["violations"])


def share(part: float | None) -> str | None:
    """A share (0 to 1) in per cent."""
    return None if part is None else f"{part:.0%}"
