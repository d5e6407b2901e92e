"""The job contract: the arguments that speck passes to a program's `main`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from speck.model.bounded_cache import BoundedCache
from speck.model.ids import sink_client_id, source_client_id
from speck.model.job import Batching, Job
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.model.values import cut, is_name
from speck.spec.expansion import text_bytes

FLAGS = (
    "job-name",
    "source-broker",
    "source-topic",
    "sink-broker",
    "sink-topic",
    "client-id",
    "sink-client-id",
    "epoch",
    "delivery",
    "sink-readers",
)
"""The arguments that speck passes to every job, in this order, before the job's own."""

LINK_FLAGS = ("batch-records", "linger-ms", "compression")
"""Further arguments, for a job with options in `link`: how its sink sends."""

TAKEN_FLAG = "taken"
"""A further argument, for a job that succeeds another as the reader of its link: the numbers that
the other has taken."""

UNTIL_FLAG = "until"
"""A further argument, for a job that is to stop at a record of its link: the numbers to take."""

PORT_FLAG = "port"
"""A further argument, for a job whose sink writes to several links of its broker: the topic of each
and the client id with which it reports what it has sent there, those of the other flags first. It
numbers what it sends to each by itself, also if it is to send again to one of them only. No
description asks for it yet."""

PLACEHOLDERS = tuple(flag.replace("-", "_") for flag in (*FLAGS, *LINK_FLAGS))

MAX_RENDERED = 1 << 18
"""The most characters of a job's arguments with the values of their placeholders."""

_SET_FLAGS = (*FLAGS, PORT_FLAG, TAKEN_FLAG, UNTIL_FLAG)

# {{name}} stands for the text {name}; braces around anything else (JSON, say) are kept as they are.
_PLACEHOLDER = re.compile(
    r"\{\{(?P<literal>[a-z_]+|secret:[^{}]*)\}\}|\{(?P<name>[a-z_]+)\}|\{secret:(?P<secret>[^{}]*)\}"
)


def args_faults(args: Sequence[str]) -> dict[int, str]:
    """Return the faults in a job's own arguments, by index."""
    faults = {}
    has_placeholders = _hold_placeholders(tuple(args))
    for index, arg in enumerate(args):
        if "{" not in arg and not arg.startswith("--"):
            continue
        if invalid := sorted(name for name in list_secrets([arg]) if not is_name(name)):
            faults[index] = (
                f"{{secret:{cut(invalid[0])}}} names no secret: write {{secret:NAME}} with the name"
                " of a line secret.NAME=... in the site's credentials file"
            )
        unknown = sorted(_names(arg) - {*PLACEHOLDERS})
        if unknown:
            allowed = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            first = cut(unknown[0])
            faults[index] = (
                f"unknown placeholder {{{first}}}; known are {allowed}; "
                f"write {{{{{first}}}}} for the text {{{first}}}"
            )
        flag = arg.partition("=")[0]
        if not has_placeholders and flag.startswith("--") and flag[2:] in _SET_FLAGS:
            faults[index] = f"{flag} is set by speck itself; leave it out"
        if not has_placeholders and flag.startswith("--") and flag[2:] in LINK_FLAGS:
            field = flag[2:].replace("-", "_")
            faults[index] = f"{flag} is set by speck itself; write link: {{{field}: ...}}"
    return faults


def link_fault(link: Batching, args: Sequence[str]) -> str | None:
    """Return why a job whose arguments hold placeholders would not receive its `link` options, or
    None if it does."""
    if link == Batching() or not _hold_placeholders(tuple(args)):
        return None
    placeholders = {flag.replace("-", "_") for flag in LINK_FLAGS}
    if placeholders & {name for arg in args for name in _names(arg)}:
        return None
    allowed = ", ".join(f"{{{name}}}" for name in sorted(placeholders))
    return f"args have placeholders, but none of {allowed}: the job would not receive them"


def list_secrets(args: Sequence[str]) -> list[str]:
    """The names of the secrets that arguments refer to (`{secret:NAME}`), sorted."""
    matches = (match for arg in args if "{" in arg for match in _PLACEHOLDER.finditer(arg))
    return sorted({match["secret"] for match in matches if match["secret"] is not None})


def _names(arg: str) -> set[str]:
    if "{" not in arg:  # a look that takes a tenth of the time
        return set()
    return {match["name"] for match in _PLACEHOLDER.finditer(arg) if match["name"]}


def _hold_placeholders(args: tuple[str, ...]) -> bool:
    return _HOLDING.get(args, lambda: any(_names(arg) for arg in args))


_HOLDING: BoundedCache[tuple[str, ...], bool] = BoundedCache(
    8 << 20, lambda args, _: 200 + 60 * len(args) + text_bytes(args)
)


def reports_numbers(job: Job) -> bool:
    """Whether a job presumably keeps the whole contract, sequence numbers included. A job with
    placeholders parses its own arguments, and so presumably has a connector of its own."""
    return not _hold_placeholders(job.args)


def render_args(
    job: Job,
    installation: str,
    epoch: int,
    sink_has_readers: bool,
    taken: Sequence[TakenEpoch] = (),
    secrets: Mapping[str, str] | None = None,
    until: Sequence[TakenEpoch] = (),
    only: Link | None = None,
) -> tuple[str, ...]:
    """Return the arguments of one incarnation of `job`; it skips the messages that earlier readers
    have `taken` from its link, and reads no further than `until`, if given. Of its port it writes
    to one link `only`, if given. `epoch` is that of its sink's sequence numbers. References to
    `secrets` are left as they are when it is None.

    They are the standard arguments and then the job's own; if one of its own holds a placeholder,
    only its own, rendered. Raises KeyError for an unknown placeholder or secret
    (`speck.deploy.admission` refuses these).
    """
    has_several = bool(job.more_sinks)
    job = job if only is None else job.with_port((only,))
    values = _placeholder_values(job, installation, epoch, sink_has_readers)
    own = tuple(_render(arg, values, secrets) for arg in job.args)
    if _hold_placeholders(job.args):
        return own
    flags = FLAGS if job.link == Batching() else (*FLAGS, *LINK_FLAGS)
    standard = (text for flag in flags for text in (f"--{flag}", values[flag.replace("-", "_")]))
    to_skip = (f"--{TAKEN_FLAG}", render_taken(taken)) if taken else ()
    to_end = (f"--{UNTIL_FLAG}", render_taken(until)) if until else ()
    port = (f"--{PORT_FLAG}", render_port(job, installation)) if has_several else ()
    return (*standard, *port, *to_skip, *to_end, *own)


def rendered_fault(job: Job) -> str | None:
    """Return why the arguments of `job` are too long once their placeholders are replaced, or None
    if they are not. They are counted, not rendered."""
    values = _placeholder_values(job, "", 0, sink_has_readers=False)
    size = sum(
        len(values[match["name"]]) - len(match[0])
        for arg in job.args
        if "{" in arg
        for match in _PLACEHOLDER.finditer(arg)
        if match["name"]
    )
    size += sum(map(len, job.args))
    if size <= MAX_RENDERED:
        return None
    return (
        f"with the values of their placeholders, args have {size} characters, at most"
        f" {MAX_RENDERED} are taken; use fewer placeholders, or shorter topics"
    )


def _placeholder_values(
    job: Job, installation: str, epoch: int, sink_has_readers: bool
) -> dict[str, str]:
    return dict(
        zip(
            PLACEHOLDERS,
            (
                job.job_name,
                job.source_broker,
                job.source.topic,
                job.sink_broker,
                job.sink.topic,
                source_client_id(installation, job.job_name, job.source),
                sink_client_id(installation, job.job_name, job.source, job.sink),
                str(epoch),
                str(job.delivery),
                "some" if sink_has_readers else "none",
                str(job.link.batch_records),
                str(job.link.linger_ms),
                str(job.link.compression),
            ),
            strict=True,
        )
    )


def render_port(job: Job, installation: str) -> str:
    """Render as `<topic>/<client id>`, joined by `;`; topics are percent-encoded."""
    return ";".join(
        f"{quote(link.topic, safe='')}/"
        f"{sink_client_id(installation, job.job_name, job.source, link)}"
        for link in job.port
    )


def parse_port(text: str) -> tuple[tuple[str, str], ...]:
    """The inverse of `render_port`: (topic, client id) of each link. Raises ValueError if `text`
    cannot be parsed."""
    pairs = (entry.split("/") for entry in filter(None, text.split(";")))
    return tuple((unquote(topic), client_id) for topic, client_id in pairs)


def render_taken(taken: Sequence[TakenEpoch]) -> str:
    """Render as `<producer>/<epoch>/<upto>[/<first>-<last>,...]`, joined by `;`; producers are
    percent-encoded."""
    entries = []
    for each in taken:
        above = ",".join(f"{first}-{last}" for first, last in each.above)
        numbers = f"{each.upto}/{above}" if above else str(each.upto)
        entries.append(f"{quote(each.producer, safe='')}/{each.epoch}/{numbers}")
    return ";".join(entries)


def parse_taken(text: str) -> tuple[TakenEpoch, ...]:
    """The inverse of `render_taken`. Raises ValueError if `text` cannot be parsed."""
    taken = []
    for entry in filter(None, text.split(";")):
        producer, epoch, upto, *above = entry.split("/")
        pairs = (pair.partition("-") for part in above for pair in part.split(","))
        ranges = tuple((int(first), int(last)) for first, _, last in pairs)
        taken.append(TakenEpoch(unquote(producer), int(epoch), int(upto), ranges))
    return tuple(taken)


def _render(arg: str, values: dict[str, str], secrets: Mapping[str, str] | None) -> str:
    def value(match: re.Match[str]) -> str:
        if match["secret"] is not None:
            return match[0] if secrets is None else secrets[match["secret"]]
        return f"{{{match['literal']}}}" if match["literal"] else values[match["name"]]

    return _PLACEHOLDER.sub(value, arg)
