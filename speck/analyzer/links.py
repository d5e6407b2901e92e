"""Links: one rate for each, of what was measured at its ends, and the bytes between sites. Pure.

A job's end of a link uses the WAN if its engine is at another site than the link's broker. Records
and bytes of an end are of the same samples, the counters of its job; the numbers that the end
publishes at the broker (`counted_per_s`) stand beside them, and count where no job reports. A link
that several compositions use has a row for each, with the same rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from speck.model.analysis_result import AnalysedLink, AnalysedProducer, AnalysedReader
from speck.model.values import JsonObject
from speck.placement.evidence import (
    INSUFFICIENT,
    QUEUE_FIT,
    SUFFICIENT,
    LinkRate,
    Measured,
    judge_rates,
    reconcile,
)

END_FIELDS = (
    "client_id",
    "job_name",
    "site",
    "records_per_s",
    "bytes_per_s",
    "counted_per_s",
    "evidence",
    "why",
)
LAG_FIELDS = ("lag", "lag_per_s", "lag_fit")


class Link(NamedTuple):
    """A topic at the broker of a site."""

    site: str | None
    topic: str


def source_of(job: JsonObject) -> Link | None:
    """The link that a row of JOBS reads; None: not known, or none."""
    return None if job["source_topic"] is None else Link(job["source_site"], job["source_topic"])


def sink_of(job: JsonObject) -> Link | None:
    """The link that a row of JOBS writes; None: not known, or none."""
    return None if job["sink_topic"] is None else Link(job["sink_site"], job["sink_topic"])


def join_links(jobs: Iterable[JsonObject], ends: Iterable[JsonObject]) -> list[AnalysedLink]:
    """The links of rows of JOBS and ENDS of all compositions, ordered by site and topic.

    Includes ends that published numbers and those that the jobs' plans name without numbers.
    """
    ends_of: defaultdict[Link, list[JsonObject]] = defaultdict(list)
    for end in _merge_ends(jobs, ends):
        ends_of[Link(end["broker_site"], end["topic"])].append(end)
    links = []
    for link, own_ends in ends_of.items():
        _add_missing_bytes(own_ends)
        is_fed = _is_fed_outside(own_ends)
        rate = _rate(own_ends, is_fed_outside=is_fed)
        for composition in {end["composition"] for end in own_ends}:
            links.append(_make(composition, link, own_ends, rate, is_fed=is_fed))
    return sorted(
        links, key=lambda each: (each.broker_site or "", each.topic, each.composition or "")
    )


def _merge_ends(jobs: Iterable[JsonObject], ends: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Each end once: of a job that runs by its plan, with the newest numbers that were published
    for it; else by its numbers alone."""
    published: dict[tuple[Any, ...], JsonObject] = {}
    for end in sorted(ends, key=lambda end: (end["last_at"], _reverse(end["client_id"]))):
        published[_identify(end)] = end
    for job in jobs:
        for role, link in (("reader", source_of(job)), ("producer", sink_of(job))):
            if job["ended"] or link is None:
                continue
            end = _make_end(job, role, link)
            yield _add_numbers(end, published.pop(_identify(end), None))
    for end in published.values():
        bare = {name: end[name] for name in ("composition", "broker_site", "topic", "role")}
        bare |= {"job_name": end["job_name"], "site": end["engine_site"], "is_input": False}
        bare |= dict.fromkeys(("records_per_s", "bytes_per_s", "size", "seconds"))
        why = [] if end["job_name"] is None else ["it is not in the analysis"]
        yield _add_numbers({**bare, "why": why}, end)


def _reverse(text: str) -> tuple[int, ...]:
    """Sorts in the reverse order: of two ends that were seen last together the first one counts."""
    return tuple(-ord(letter) for letter in text)


def _identify(end: JsonObject) -> tuple[Any, ...]:
    """A job has one end of a role at a link; a client outside is known by its id."""
    client_id = end["client_id"] if end["job_name"] is None else None
    of_link = (end["composition"], end["broker_site"], end["topic"], end["role"])
    return (*of_link, end["job_name"], client_id)


def _make_end(job: JsonObject, role: str, link: Link) -> JsonObject:
    way = "in" if role == "reader" else "out"
    evidence = (job["rate_evidence"], job["evidence"])
    doubt = judge_rates(evidence, job["rate_why"] or job["why"])
    rate, size = job[f"{way}_rate"], job[f"bytes_{way}_rate"]
    if doubt is None and (rate is None or (size is None and rate > 0)):
        doubt = f"{'records' if rate is None else 'bytes'} {way} are not reported"
    return {
        "composition": job["composition"],
        "broker_site": link.site,
        "topic": link.topic,
        "role": role,
        "client_id": None,
        "job_name": job["job_name"],
        "site": job["site"],
        "records_per_s": rate,
        "bytes_per_s": 0.0 if rate == 0 and size is None else size,
        "size": job[f"bytes_{way}_per_record"],
        "seconds": job["seconds"],
        "why": [] if doubt is None else [doubt],
        "is_input": role == "reader" and bool(job["source_is_input"]),
    }


def _add_numbers(end: JsonObject, published: JsonObject | None) -> JsonObject:
    numbers = published or {}
    counted = numbers.get("records_per_s")
    rate = end["records_per_s"]
    return {
        **end,
        "client_id": numbers.get("client_id"),
        "counted_per_s": counted,
        "records_per_s": counted if rate is None else rate,
        **{name: numbers.get(name) for name in LAG_FIELDS},
    }


def _add_missing_bytes(ends: Sequence[JsonObject]) -> None:
    """Bytes of an end that reports none, by the mean size of a record at the others."""
    sizes = [end["size"] for end in ends if end["size"] is not None]
    mean = sum(sizes) / len(sizes) if sizes else None
    for end in ends:
        if end["bytes_per_s"] is None and end["records_per_s"] is not None and mean is not None:
            end["bytes_per_s"] = end["records_per_s"] * mean


def _is_fed_outside(ends: Iterable[JsonObject]) -> bool:
    """Whether outsiders send to the link: it is declared as an input, or a producer that is no job
    was seen, or no job writes to it."""
    ends = list(ends)
    writers = [end["job_name"] for end in ends if end["role"] == "producer"]
    return None in writers or not writers or any(end["is_input"] for end in ends)


def _rate(ends: Sequence[JsonObject], *, is_fed_outside: bool) -> LinkRate:
    """The rate of a link with these ends."""
    writers = [_measure(end) for end in ends if end["role"] == "producer" and end["job_name"]]
    known = [each for each in writers if each is not None]
    taken = [
        _add_queue(end, each)
        for end in ends
        if end["role"] == "reader" and (each := _measure(end)) is not None
    ]
    sent = _sum(known) if known and len(known) == len(writers) else None
    return reconcile(sent, taken, is_fed_outside=is_fed_outside)


def _measure(end: JsonObject) -> Measured | None:
    """What was measured at the end; None without evidence."""
    rate, size = end["records_per_s"], end["bytes_per_s"]
    if end["job_name"] is None or end["why"] or rate is None or size is None:
        return None
    return Measured(rate, size, end["seconds"] or 0.0)


def _sum(measured: Sequence[Measured]) -> Measured:
    return Measured(
        sum(each.records_per_s for each in measured),
        sum(each.bytes_per_s for each in measured),
        min(each.seconds for each in measured),
    )


def _add_queue(end: JsonObject, taken: Measured) -> Measured:
    """What arrives for a reader: what it takes, and what its queue grows by."""
    growth = end["lag_per_s"] or 0.0
    if growth <= 0 or (end["lag_fit"] or 0.0) < QUEUE_FIT or not taken.records_per_s:
        return taken
    factor = 1 + growth / taken.records_per_s
    return Measured(taken.records_per_s * factor, taken.bytes_per_s * factor, taken.seconds)


def _make(
    composition: str | None,
    link: Link,
    ends: Sequence[JsonObject],
    rate: LinkRate,
    *,
    is_fed: bool,
) -> AnalysedLink:
    own = [end for end in ends if end["composition"] == composition]
    crossing = [
        end["bytes_per_s"]
        for end in own
        if end["job_name"] is not None and end["site"] != link.site and end["site"] is not None
    ]
    return AnalysedLink(
        composition=composition,
        broker_site=link.site,
        topic=link.topic,
        records_per_s=rate.records_per_s,
        bytes_per_s=rate.bytes_per_s,
        seconds=rate.seconds,
        difference=rate.difference,
        evidence=SUFFICIENT if rate.doubt is None else INSUFFICIENT,
        why=() if rate.doubt is None else (rate.doubt,),
        producers=tuple(AnalysedProducer(**end) for end in _list_ends(own, "producer", ())),
        readers=tuple(AnalysedReader(**end) for end in _list_ends(own, "reader", LAG_FIELDS)),
        # if the bytes of a crossing end are unknown, so is the sum
        wan_bytes_per_s=None if None in crossing else float(sum(crossing)),
        fed_outside=is_fed,
    )


def _list_ends(ends: Iterable[JsonObject], role: str, more: Sequence[str]) -> Iterator[JsonObject]:
    """END_FIELDS, and `more`, of the ends of one role."""
    own = (end for end in ends if end["role"] == role)
    for end in sorted(own, key=lambda end: (end["client_id"] or "", end["job_name"] or "")):
        judged = {
            **end,
            "evidence": INSUFFICIENT if _measure(end) is None else SUFFICIENT,
            "why": tuple(end["why"]),
        }
        yield {name: judged[name] for name in (*END_FIELDS, *more)}
