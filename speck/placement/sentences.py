"""What is said of a placement as a whole, and how reasons are folded. Pure.

All who show a placement (`speck advise`, `place`, `offload`, `POST /advice`) say these sentences;
the rows of the jobs are made by `speck.placement.reasons`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from speck.model.values import JsonObject, cut
from speck.placement.figures import describe_duration, describe_rate, describe_size

LOW = "low"
MANY = 8
"""More jobs than these are not all named."""
MEDIUM_SPREAD = MEDIUM_OVERLOAD = 0.3
"""Above these the analyzer's confidence is low (`speck.analyzer.job_evidence.rate_confidence`)."""

LEGEND = {
    "saves": "how many more bytes would cross between sites if this job alone were at the site of"
    " the next column",
    "costs": "what the move costs once: the job's state, and what arrives while it is silent",
    "paid off": "when the move has saved as many bytes as it costs",
    "confidence": "how well the figures are supported; with low confidence the autopilot waits",
}
"""What the columns of a placement mean."""


def explain_low_confidence(
    contended: float | None, spread: float | None, *, is_calibrated: bool
) -> str:
    """Why the analyzer's confidence in a job's figures is low. `is_calibrated`: its edge is, or
    nobody has ranked it."""
    overloaded = contended or 0.0
    if overloaded > MEDIUM_OVERLOAD:
        return describe_overload(overloaded)
    if spread is not None and spread > MEDIUM_SPREAD:
        return f"its cost varies by {spread:.0%} over the window"
    if not is_calibrated:
        return "its edge is not calibrated (`speck site calibrate`)"
    return "it was measured for a short time only"


def describe_overload(share: float) -> str:
    """For which share of the time the machine was overloaded."""
    if share >= 0.995:
        return "the machine was overloaded all the time"
    return f"the machine was overloaded {share:.0%} of the time"


def fold(whys: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Each sentence once, with the jobs that it holds for, from (job, sentences)."""
    jobs: dict[str, list[str]] = {}
    for name, sentences in whys:
        for sentence in sentences:
            jobs.setdefault(sentence, []).append(name)
    return jobs


def name_jobs(names: Sequence[str], total: int) -> str:
    """Some of `total` jobs, in few words."""
    if len(names) == total > 1:
        return "both jobs" if total == 2 else f"all {total} jobs"
    if len(names) > MANY:
        return f"{', '.join(names[: MANY - 2])} and {len(names) - MANY + 2} more"
    return ", ".join(names)


def explain(placement: JsonObject) -> list[str]:
    """Why each job is placed where it is: each reason once, with the jobs that it holds for."""
    rows = placement["jobs"]
    folded = fold((row["job_name"], row["why"]) for row in rows)
    return [f"{name_jobs(names, len(rows))}: {sentence}" for sentence, names in folded.items()]


def summarise(placement: JsonObject) -> list[str]:
    """What a placement changes as a whole, what that costs, and what is to be noted."""
    return [*_list_effects(placement), *_list_costs(placement), *_list_notes(placement)]


def _list_effects(placement: JsonObject) -> Iterator[str]:
    today, proposed, gain = placement["today"], placement["proposed"], placement["gain"]
    before, after = (describe_rate(side["wan_bytes_per_s"]) for side in (today, proposed))
    yield f"between sites: {before} → {after}{_describe_gain(gain['share'])}"
    if today["latency_ms"] is not None or proposed["latency_ms"] is not None:
        yield f"latency: {_ms(today['latency_ms'])} → {_ms(proposed['latency_ms'])}"
    if today["max_rate"] is not None or proposed["max_rate"] is not None:
        yield f"highest rate: {_describe_max_rate(today)} → {_describe_max_rate(proposed)}"
    for link in placement["rewired"]:
        yield f"topic {cut(link['topic'])}: broker of {link['from']} → {link['to']}"
    if placement["restarted"]:
        yield f"restarted, since their topics move: {', '.join(placement['restarted'])}"


def _list_costs(placement: JsonObject) -> Iterator[str]:
    gain, silences = placement["gain"], placement["silences"]
    if not gain["cost_bytes"]:
        return
    kinds = {move["stateful"] is not False for move in placement["proposed"]["moves"]}
    silence = " and ".join(
        f"{describe_duration(each['seconds'])} of silence of {what}"
        + (f" (median of {each['moves']} moves)" if each["moves"] else " (assumed)")
        for each, what, is_shown in (
            (silences["stateless"], "jobs without state", False in kinds),
            (silences["stateful"], "jobs with state", True in kinds),
        )
        if is_shown
    )
    paid = gain["break_even_s"]
    yield (
        f"cost of the moves: {describe_size(gain['cost_bytes'])}"
        + (f", with {silence}" if silence else "")
        + ("" if paid is None else f"; paid off after {describe_duration(paid)}")
    )


def _list_notes(placement: JsonObject) -> Iterator[str]:
    if placement["gap"]:
        yield f"stopped early: the optimum is at most {placement['gap']:.1%} better"
    yield from (f"note: {note}" for note in placement["notes"])
    for limit in placement["today"]["violations"]:
        if limit not in placement["violations"]:
            yield f"today: {limit}"
    yield from (f"exceeded: {limit}" for limit in placement["violations"])


def _describe_gain(part: float | None) -> str:
    """What part of today's bytes is saved; nothing if there are none, or as many are proposed."""
    if part is None or part == 0:
        return ""
    return f" ({abs(part):.0%} {'saved' if part > 0 else 'more'})"


def _ms(latency: float | None) -> str:
    return "not known" if latency is None else f"{latency:.3g} ms"


def _describe_max_rate(side: JsonObject) -> str:
    if side["max_rate"] is None:
        return "not known"
    return f"{side['max_rate']:.4g} records/s (limited by {side['held_by']})"
