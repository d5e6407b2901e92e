"""The job contract: what a jar's `main` is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from speck.model.ids import source_client_id
from speck.model.job import Batching, Job
from speck.model.observation import TakenEpoch

FLAGS = (
    "job-name",
    "source-broker",
    "source-topic",
    "sink-broker",
    "sink-topic",
    "client-id",
    "epoch",
    "delivery",
    "sink-readers",
)
"""The arguments that every job is given, in this order, before its own."""

LINK_FLAGS = ("batch-records", "linger-ms", "compression")
"""Given too, before its own, to a job whose `link` says how its sink sends."""

TAKEN_FLAG = "taken"
"""Given too to a job that follows another one as the reader of its link: what was taken there."""

PLACEHOLDERS = tuple(flag.replace("-", "_") for flag in (*FLAGS, *LINK_FLAGS))

# {{name}} stands for the text {name}; braces that hold anything else (JSON, say) are left alone.
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[a-z_]+)\}\}|\{(?P<name>[a-z_]+)\}")


def args_faults(args: Sequence[str]) -> dict[int, str]:
    """What is wrong with a job's own arguments, by index."""
    faults = {}
    rendered = _hold_placeholders(args)
    for index, arg in enumerate(args):
        unknown = sorted(_names(arg) - {*PLACEHOLDERS})
        if unknown:
            known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            faults[index] = (
                f"unknown placeholder {{{unknown[0]}}}; known are {known}; "
                f"write {{{{{unknown[0]}}}}} for the text {{{unknown[0]}}}"
            )
        flag = arg.partition("=")[0]
        if not rendered and flag.startswith("--") and flag[2:] in (*FLAGS, TAKEN_FLAG):
            faults[index] = f"{flag} is given by speck itself; leave it out"
        if not rendered and flag.startswith("--") and flag[2:] in LINK_FLAGS:
            field = flag[2:].replace("-", "_")
            faults[index] = f"{flag} is given by speck itself; write link: {{{field}: ...}}"
    return faults


def link_fault(link: Batching, args: Sequence[str]) -> str | None:
    """Why a job that has its own spelling of arguments would never hear of its `link`."""
    if link == Batching() or not _hold_placeholders(args):
        return None
    wanted = {flag.replace("-", "_") for flag in LINK_FLAGS}
    if wanted & {name for arg in args for name in _names(arg)}:
        return None
    known = ", ".join(f"{{{name}}}" for name in sorted(wanted))
    return f"args have placeholders, but none of {known}: the job would not be told"


def _names(arg: str) -> set[str]:
    return {match["name"] for match in _PLACEHOLDER.finditer(arg) if match["name"]}


def _hold_placeholders(args: Sequence[str]) -> bool:
    return any(_names(arg) for arg in args)


def tells_numbers(job: Job) -> bool:
    """Whether a job keeps the whole contract, numbers included, as far as can be told: one
    with placeholders has a spelling, and so presumably a connector, of its own."""
    return not _hold_placeholders(job.args)


def render_args(
    job: Job,
    installation: str,
    attempt: int,
    sink_has_readers: bool,
    taken: Sequence[TakenEpoch] = (),
) -> tuple[str, ...]:
    """The arguments of one incarnation of `job`, which drops what others have `taken` of its
    link before it.

    The standard ones, then the job's own; when an own one holds a placeholder, only the own
    ones, rendered. Raises KeyError for an unknown placeholder (`speck.spec.resolve` has refused
    those).
    """
    values = dict(
        zip(
            PLACEHOLDERS,
            (
                job.job_name,
                job.source.broker,
                job.source.topic,
                job.sink.broker,
                job.sink.topic,
                source_client_id(installation, job.job_name, job.source),
                str(attempt),
                str(job.delivery),
                "some" if sink_has_readers else "none",
                str(job.link.batch_records),
                str(job.link.linger_ms),
                str(job.link.compression),
            ),
            strict=True,
        )
    )
    own = tuple(_render(arg, values) for arg in job.args)
    if _hold_placeholders(job.args):
        return own
    flags = FLAGS if job.link == Batching() else (*FLAGS, *LINK_FLAGS)
    standard = (text for flag in flags for text in (f"--{flag}", values[flag.replace("-", "_")]))
    follows = (f"--{TAKEN_FLAG}", render_taken(taken)) if taken else ()
    return (*standard, *follows, *own)


def render_taken(taken: Sequence[TakenEpoch]) -> str:
    """`<producer>/<epoch>/<upto>[/<first>-<last>,...]`, joined by `;`; producers are
    percent-encoded."""
    entries = []
    for each in taken:
        above = ",".join(f"{first}-{last}" for first, last in each.above)
        numbers = f"{each.upto}/{above}" if above else str(each.upto)
        entries.append(f"{quote(each.producer, safe='')}/{each.epoch}/{numbers}")
    return ";".join(entries)


def parse_taken(text: str) -> tuple[TakenEpoch, ...]:
    """The inverse of `render_taken`. Raises ValueError when it is none."""
    taken = []
    for entry in filter(None, text.split(";")):
        producer, epoch, upto, *above = entry.split("/")
        pairs = (pair.partition("-") for part in above for pair in part.split(","))
        ranges = tuple((int(first), int(last)) for first, _, last in pairs)
        taken.append(TakenEpoch(unquote(producer), int(epoch), int(upto), ranges))
    return tuple(taken)


def _render(arg: str, values: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return f"{{{match['literal']}}}" if match["literal"] else values[match["name"]]

    return _PLACEHOLDER.sub(value, arg)
