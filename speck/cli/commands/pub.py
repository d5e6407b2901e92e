"""`speck pub`: sends records to a link."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO

import click

from speck.cli.documents import STDIN
from speck.cli.links import add_direct_options, open_direct, refuse_credentials_alone
from speck.cli.options import (
    Number,
    add_service_options,
    client,
    names_of,
    output,
)
from speck.errors import InvalidError
from speck.model.values import cut

_AT_ONCE, _BYTES_AT_ONCE = 500, 512 * 1024
"""Records and bytes of one request, which may have 1 MiB as JSON in base64."""
_LONGEST_LINE = 1024 * 1024
_LINES_AHEAD = 2 * _AT_ONCE
"""Lines that are read before they are sent: stdin may never end."""
_SLICE_S = 0.2

Send = Callable[[list[bytes]], int]
"""Publishes records; returns how many found no reader."""


@click.command()
@click.argument("site", shell_complete=names_of("sites"))
@click.argument("topic")
@click.argument("records", nargs=-1, metavar="[RECORD]...")
@click.option("-f", "--file", type=click.File("rb"), help="Send the lines of a file.")
@click.option("--rate", type=Number(min=0, min_open=True), help="Records per second at most.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Send the given RECORDs so many times.",
)
@add_direct_options
@add_service_options
def pub(
    site: str,
    topic: str,
    records: tuple[str, ...],
    file: BinaryIO | None,
    rate: float | None,
    repeat: int,
    direct: bool,
    credentials: Path | None,
) -> None:
    """Send records to a link, as a sensor does.

    TOPIC is the link's topic at the broker of SITE. Without RECORD and --file, or with `-` as the
    only RECORD, each line of stdin is one record, sent as it comes.

    The records carry no numbers: jobs take them, but do not recognise repeats and losses
    (`speck replay` numbers what it sends).
    """
    refuse_credentials_alone(credentials, direct=direct)
    if records and file is not None:
        raise click.UsageError("give RECORDs or --file, not both")
    send = _make_sender(site, topic, credentials, direct=direct)
    if records and records != (STDIN,):
        source = _in_groups(os.fsencode(record) for _ in range(repeat) for record in records)
    else:
        source = _lines(file or sys.stdin.buffer)
    sent = unread = 0
    for group in _paced(source, rate):
        unread += send(group)
        sent += len(group)
    _show(site, topic, sent, unread)


def _make_sender(site: str, topic: str, credentials: Path | None, *, direct: bool) -> Send:
    if direct:
        broker = open_direct(site, credentials)
        return lambda group: broker.publish(topic, group)
    service = client()
    return lambda group: int(service.publish(site, topic, group)["unread"])


def _in_groups(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The records in groups for one request each."""
    group: list[bytes] = []
    size = 0
    for record in records:
        if group and (len(group) == _AT_ONCE or size + len(record) > _BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(record)
        size += len(record)
    if group:
        yield group


def _lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends: those that are there, at once."""
    lines: Queue[bytes | None] = Queue(_LINES_AHEAD)
    fault: list[str] = []

    def read() -> None:
        try:
            while line := stream.readline(_LONGEST_LINE + 1):
                if len(line) > _LONGEST_LINE:
                    fault.append(f"send a line of more than {_LONGEST_LINE} bytes")
                    break
                lines.put(line.removesuffix(b"\n").removesuffix(b"\r"))
        except (OSError, ValueError) as error:  # e.g. a folder as stdin; it is closed
            fault.append(f"read the records: {getattr(error, 'strerror', None) or error}")
        finally:
            lines.put(None)

    Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        group = [line]
        ended = False
        while len(group) < _AT_ONCE and not ended:
            try:
                following = lines.get_nowait()
            except Empty:
                break
            if following is None:
                ended = True
            else:
                group.append(following)
        yield from _in_groups(group)
        if ended:
            break
    if fault:
        raise InvalidError(f"cannot {fault[0]}")


def _paced(groups: Iterator[list[bytes]], rate: float | None) -> Iterator[list[bytes]]:
    """The groups, cut and delayed so that no more than `rate` records come in a second."""
    if rate is None:
        yield from groups
        return
    most, due = max(1, int(rate * _SLICE_S)), time.monotonic()
    for group in groups:
        for first in range(0, len(group), most):
            part = group[first : first + most]
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic()) + len(part) / rate
            yield part


def _show(site: str, topic: str, sent: int, unread: int) -> None:
    from speck.cli.messages import say, warn

    if not output().table:
        output().show({"site": site, "topic": topic, "sent": sent, "unread": unread})
        return
    say(f"sent {sent} record{'s' if sent != 1 else ''} to {site}/{cut(topic)}")
    if unread:
        warn(f"{unread} of them found no reader on {cut(topic)} at {site}, and are lost")
