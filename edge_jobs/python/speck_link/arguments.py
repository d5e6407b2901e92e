"""The arguments of the job contract; a twin of the connector's Parameters and JobContract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from speck_link.kafka.address import LOG_SCHEMES, AddressError, check_topic, normalize
from speck_link.taken import Entry, Until, parse_hand_over

_SCHEMES = ("tcp", "mqtt", "ssl", "mqtts", *LOG_SCHEMES)
_DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
NAMES = frozenset(
    (
        *("job-name", "source-broker", "source-topic", "sink-broker", "sink-topic", "client-id"),
        *("sink-client-id", "epoch", "delivery", "sink-readers", "taken", "until", "port"),
        *("batch-records", "linger-ms", "compression", "receive-maximum", "sink-window"),
        *("max-record-bytes", "resend-window", "resend-bytes", "resend-state-bytes"),
        *("checkpoint-interval", "memory-mb"),
    )
)
"""Arguments that the client reads; a program may have others of its own."""


class ArgumentFaultError(ValueError):
    """An argument is missing or wrong; the message begins with "cannot"."""


class Arguments:
    """Pairs `--name value` or `--name=value`; a name without a value is a flag. The last counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.values: dict[str, str] = {}
        words = list(words)
        while words:
            word = words.pop(0)
            if not word.startswith("--") or len(word) == 2:
                raise ArgumentFaultError(
                    f'cannot read the arguments: expected --name, got "{word}"'
                )
            name, equals, value = word[2:].partition("=")
            if not equals:
                value = words.pop(0) if words and not words[0].startswith("--") else "true"
            self.values[name] = value

    def get(self, name: str, otherwise: str | None = None) -> str:
        value = self.values.get(name, otherwise)
        if value is None:
            raise ArgumentFaultError(f"cannot start the job: argument --{name} is missing")
        return value

    def get_number(self, name: str, otherwise: int, least: int = 0, most: int = 1 << 53) -> int:
        text = self.values.get(name)
        if text is None:
            return otherwise
        number = int(text) if re.fullmatch(r"\d{1,18}", text) else -1
        if not least <= number <= most:
            raise self._fault(name, f"a whole number from {least} to {most}")
        return number

    def get_seconds(self, name: str, otherwise: float, *, positive: bool = False) -> float:
        """A time span such as 250ms, 10s, 5m (or 5min), 1h, 1d."""
        text = self.values.get(name)
        if text is None:
            return otherwise
        match = _DURATION.fullmatch(text.strip())
        if match is None:
            raise self._fault(name, "a duration such as 250ms, 10s, 5m or 1h")
        seconds = int(match[1]) * _UNITS[match[2]]
        if positive and not seconds:
            raise self._fault(name, "> 0")
        return seconds

    def get_list(self, name: str) -> list[str]:
        """A list with commas, without blanks and empty items."""
        return [item.strip() for item in self.get(name).split(",") if item.strip()]

    def choose(self, name: str, otherwise: str, *choices: str) -> str:
        value = self.get(name, otherwise)
        if value not in choices:
            raise self._fault(name, " or ".join(choices))
        return value

    def _fault(self, name: str, wanted: str) -> ArgumentFaultError:
        return ArgumentFaultError(
            f'cannot use --{name} "{self.values.get(name)}": it must be {wanted}'
        )


@dataclass(frozen=True)
class Link:
    """One end of a job: a topic at a broker, under a client id."""

    broker: str
    topic: str
    client_id: str

    def __str__(self) -> str:
        return f"{self.topic} at {self.broker}"


def keeps_log(broker: str) -> bool:
    """Whether a link there is a log, in which readers have places, as of Kafka."""
    return broker.partition("://")[0].lower() in LOG_SCHEMES


@dataclass(frozen=True)
class Contract:
    """What the arguments say of the job's two links."""

    job_name: str
    source: Link
    sink: Link
    producer: str
    attempt: int
    port: tuple[Link, ...]
    """All links that the sink writes to, the first being that of `sink`."""
    numbers_apart: bool
    """Whether each link has a producer of its own."""
    delivery: str
    has_readers: bool
    taken: tuple[Entry, ...]
    until: Until
    receive_maximum: int
    sink_window: int
    max_record_bytes: int
    resend_s: float
    resend_bytes: int
    resend_state_bytes: int
    batch_records: int
    linger_s: float
    zstd: bool
    checkpoint_s: float

    def producer_of(self, link: Link) -> str:
        """Under which name the records of a link of the port are numbered."""
        return producer_in_port(link.client_id) if self.numbers_apart else self.producer

    @property
    def is_exact(self) -> bool:
        return self.delivery == "exactly_once"

    @property
    def is_acknowledged(self) -> bool:
        return self.delivery != "at_most_once"


def read_contract(arguments: Arguments) -> Contract:
    """Raises ArgumentFaultError naming what is missing or wrong."""
    client_id = arguments.get("client-id")
    sink_id = arguments.get("sink-client-id", f"{client_id}-out")
    source = _read_link(arguments, "source", client_id)
    sink = _read_link(arguments, "sink", sink_id)
    one_by_one = keeps_log(sink.broker)  # Kafka's client makes batches of its own
    try:
        taken = parse_hand_over("taken", arguments.get("taken", ""))
        until = Until(parse_hand_over("until", arguments.get("until", "")))
    except ValueError as error:
        raise ArgumentFaultError(str(error)) from error
    batch_records = arguments.get_number("batch-records", 1, 1, 10_000)
    compression = arguments.choose("compression", "none", "none", "zstd")
    return Contract(
        job_name=arguments.get("job-name"),
        source=source,
        sink=sink,
        producer=producer_of_sink(sink_id),
        attempt=arguments.get_number("epoch", 0, 0, 1 << 40),
        port=_read_port(arguments, sink),
        numbers_apart="port" in arguments.values,
        delivery=arguments.choose(
            "delivery", "at_least_once", "at_most_once", "at_least_once", "exactly_once"
        ),
        has_readers=arguments.choose("sink-readers", "none", "none", "some") == "some",
        taken=taken,
        until=until,
        receive_maximum=arguments.get_number("receive-maximum", 4000, 1, 65_534),
        sink_window=arguments.get_number("sink-window", 2000, 1, 65_534),
        max_record_bytes=arguments.get_number("max-record-bytes", 1 << 20, 1),
        resend_s=arguments.get_seconds("resend-window", 15.0),
        resend_bytes=arguments.get_number("resend-bytes", 4 << 20),
        resend_state_bytes=arguments.get_number("resend-state-bytes", 1_000_000),
        batch_records=1 if one_by_one else batch_records,
        linger_s=max(1, arguments.get_number("linger-ms", 0, 0, 60_000)) / 1000,
        zstd=compression == "zstd" and not one_by_one,
        checkpoint_s=arguments.get_seconds("checkpoint-interval", 1.0, positive=True),
    )


def _read_link(arguments: Arguments, end: str, client_id: str) -> Link:
    name = f"{end}-broker"
    broker, topic = arguments.get(name), arguments.get(f"{end}-topic")
    scheme = broker.partition("://")[0].lower()
    if scheme not in _SCHEMES:
        raise ArgumentFaultError(
            f'cannot use --{name} "{broker}": this client reads and writes links over MQTT'
            f" and Kafka ({', '.join(f'{each}://' for each in _SCHEMES)})"
        )
    if not keeps_log(broker):
        return Link(broker, topic, client_id)
    try:
        link = Link(normalize(broker), topic, client_id)
    except AddressError as error:
        raise ArgumentFaultError(f"cannot use --{name}: {error}") from error
    return _check_link(link, f"{end}-topic")


def _check_link(link: Link, argument: str) -> Link:
    try:
        if keeps_log(link.broker):
            check_topic(link.topic, link.broker)
    except AddressError as error:
        raise ArgumentFaultError(f"cannot use --{argument}: {error}") from error
    return link


def _read_port(arguments: Arguments, first: Link) -> tuple[Link, ...]:
    """`<topic>/<client id>` of each link, joined by `;`; topics are percent-encoded."""
    links = []
    for entry in filter(None, arguments.get("port", "").split(";")):
        topic, _, client_id = entry.partition("/")
        if not (topic and client_id) or "/" in client_id:
            raise ArgumentFaultError(f'cannot use --port "{entry}": it must be <topic>/<client id>')
        links.append(_check_link(Link(first.broker, unquote(topic), client_id), "port"))
    if links and links[0] != first:
        raise ArgumentFaultError(
            f'cannot use --port "{links[0].topic}": the first link must be that of --sink-topic'
        )
    if len(set(links)) < len(links):
        raise ArgumentFaultError("cannot use --port: it names a link twice")
    return tuple(links) or (first,)


def producer_of(client_id: str) -> str:
    """`speck-<short>-<job>-<hash>` belongs to the producer `<short>-<job>`."""
    name = client_id.removeprefix("speck-")
    before, dash, _ = name.rpartition("-")
    return before if dash and before else name


def producer_of_sink(client_id: str) -> str:
    """The same for the client id of a sink, which may end with `-out`."""
    return producer_of(client_id.removesuffix("-out"))


def producer_in_port(client_id: str) -> str:
    """The producer of one link of a port that has several."""
    return client_id.removeprefix("speck-").removesuffix("-out")


def via(broker: str, routes: str) -> tuple[str, int, bool]:
    """Host and port to connect to, and whether with TLS: those of the broker, or of the relay that
    `routes` (`broker:port=relay:port`, joined by commas) name for it."""
    scheme, _, rest = broker.partition("://")
    encrypted = scheme in ("ssl", "mqtts")
    host, port = _split(rest.rstrip("/"), 8883 if encrypted else 1883)
    for route in filter(None, routes.split(",")):
        known, _, relay = route.partition("=")
        if _split(known.strip(), port) == (host, port):
            host, port = _split(relay.strip(), port)
            break
    return host, port, encrypted


def _split(text: str, port: int) -> tuple[str, int]:
    host, colon, digits = text.rpartition(":")
    if not colon or not digits.isdecimal():
        host, digits = text, str(port)
    return host.strip("[]"), int(digits)
