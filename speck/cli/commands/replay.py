"""`speck replay`: publishes a trace of detections to the sites' brokers."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from speck.cli.options import (
    Number,
    add_service_options,
    client,
    output,
    tls_files,
)
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from threading import Event

    from speck.fog.publisher import ReplayOptions
    from speck.fog.replay import StreamProgress, Summary
    from speck.fog.trace import Row
    from speck.sites.credentials import Credentials


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--rate", type=Number(min=0, min_open=True), help="Messages per second over all streams."
)
@click.option(
    "--speed", type=Number(min=0, min_open=True), help="Speed as a multiple of the trace's own."
)
@click.option(
    "--copies", type=int, default=1, show_default=True, help="Copies of each row, with other ids."
)
@click.option(
    "--broker",
    "brokers",
    metavar="SITE=URL",
    multiple=True,
    help="The broker of the streams that begin with SITE, as an address or a registered site's"
    " name; may be repeated. By default A goes to the registered site edge-a, and so on.",
)
@click.option(
    "--stream",
    "streams",
    metavar="PREFIX=STREAM",
    multiple=True,
    help="For a trace without a column `stream`: the stream of sensors whose id begins with"
    " PREFIX.",
)
@click.option("--topic", default="traffic/{stream}", show_default=True)
@click.option("--run", metavar="NAME", help="Name of this replay (default: its time).")
@click.option(
    "--readers",
    type=click.Choice(["some", "none"]),
    default="some",
    show_default=True,
    help="Whether to hold a message without a reader until there is one (some), or to count it as"
    " sent (none).",
)
@click.option(
    "--window",
    type=int,
    default=1000,
    show_default=True,
    help="Maximum of unacknowledged messages.",
)
@add_service_options
def replay(
    file: Path,
    rate: float | None,
    speed: float | None,
    copies: int,
    brokers: tuple[str, ...],
    streams: tuple[str, ...],
    topic: str,
    run: str | None,
    readers: Literal["some", "none"],
    window: int,
) -> None:
    """Publish a trace to the sites' brokers.

    FILE holds detections (CSV, optionally gzip). Without --rate or --speed, messages are sent as
    fast as possible. Every message is numbered, so that jobs drop repeats; each stream ends with a
    marker that closes its windows. Ctrl-C cancels the replay.
    """
    import time

    from speck.fog.publisher import ReplayOptions
    from speck.fog.trace import read_trace, site_of

    rows = read_trace(file, _pairs(streams, "--stream"))
    letters = {site_of(row.stream) for row in rows}
    addresses, logins, kinds = _brokers(_pairs(brokers, "--broker"), letters)
    options = ReplayOptions(
        brokers=addresses,
        run=run or f"{int(time.time())}",
        rate=rate,
        speed=speed,
        copies=copies,
        topic=topic,
        readers=readers,
        window=window,
        logins=logins,
        kinds=kinds,
    )
    with _cancel_on_ctrl_c() as cancel:
        summary = _run(rows, options, cancel)
    _show(summary)


def _pairs(options: Sequence[str], option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in options]
    for key, equals, value in pairs:
        if not equals or not value:
            raise click.UsageError(f"write {option} as NAME=VALUE, not {key!r}")
    return {key: value for key, _, value in pairs}


def _brokers(
    by_letter: Mapping[str, str], letters: set[str]
) -> tuple[dict[str, str], dict[str, Credentials], dict[str, str]]:
    """Address, login and, if it is known, kind of each site's broker; the service supplies those
    not given."""
    if letters <= by_letter.keys() and all("://" in address for address in by_letter.values()):
        return dict(by_letter), {x: _own_login(by_letter[x]) for x in letters}, {}
    sites = {site["name"]: site for site in client().sites()}
    addresses: dict[str, str] = {}
    logins: dict[str, Credentials] = {}
    kinds: dict[str, str] = {}
    for letter in sorted(letters):
        choice = by_letter.get(letter, f"edge-{letter.lower()}")
        if "://" in choice:
            addresses[letter], logins[letter] = choice, _own_login(choice)
        elif choice in sites:
            broker = sites[choice]["broker"]
            addresses[letter], kinds[letter] = broker["address"], broker["kind"]
            if broker.get("credentials"):
                logins[letter] = _login(broker["credentials"], broker["address"])
        else:
            raise click.UsageError(
                f"no site {choice!r} is registered for the streams of {letter};"
                f" give --broker {letter}=tcp://host:port"
            )
    return addresses, logins, kinds


def _own_login(address: str) -> Credentials:
    """The login for a broker that is given by its address: over TLS, the files of --ca, --cert and
    --key."""
    from speck.binding import is_encrypted
    from speck.fog.publisher import find_broker
    from speck.model.site import Broker
    from speck.sites.credentials import Credentials

    if not is_encrypted(Broker(*find_broker(address))):
        return Credentials()
    return Credentials(tls=tls_files())


def _login(name: str, address: str) -> Credentials:
    """The login for a broker, from the credentials file of that name in the service's home."""
    from speck.cli.offline import config_at
    from speck.sites.credentials import read_credentials

    return read_credentials(config_at(None).credentials / name, address)


@contextmanager
def _cancel_on_ctrl_c() -> Iterator[Event]:
    from threading import Event, current_thread, main_thread

    cancel = Event()
    if current_thread() is not main_thread():
        yield cancel
        return
    before = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


def _run(rows: Sequence[Row], options: ReplayOptions, cancel: Event) -> Summary:
    from speck.cli.bars import count_bar
    from speck.fog.replay import Replay

    with count_bar("publishing", 0) as done:

        def progress(streams: Mapping[str, StreamProgress]) -> None:
            done(sum(s.acked for s in streams.values()), sum(s.total for s in streams.values()))

        return Replay(rows, options, cancel=cancel, on_progress=progress).run()


def _show(summary: Summary) -> None:
    from dataclasses import asdict

    from speck.cli.messages import CommandFailed
    from speck.cli.output import fields

    data: JsonObject = {**asdict(summary), "seconds": round(summary.seconds, 3)}
    output().show(data, fields(data.items()))
    if summary.cancelled:
        raise CommandFailed("cannot publish everything: the replay was cancelled")
