"""The sections of results that need no more than a table: what is read from where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import key_figures, number, table

Read = str | Callable[[Result], object]
"""Where a figure is in a result (`cpu.collector`), or what makes it of one."""


def read(result: Result, what: Read) -> object:
    """One figure of a result."""
    if not isinstance(what, str):
        return what(result)
    value: object = result
    for key in what.split("."):
        assert isinstance(value, Result)
        value = value[key]
    return value


def of(what: str, unit: str, scale: float = 1, form: str = "") -> Callable[[Result], str]:
    """A figure with its unit."""

    def write(result: Result) -> str:
        value = scale * float(read(result, what))  # type: ignore[arg-type]
        return f"{value:{form}} {unit}" if form else f"{number(value)} {unit}"

    return write


def list_figures(*rows: tuple[str, Read], after: str = "") -> Callable[[Result], str]:
    """Names and figures, one a row."""
    return lambda result: key_figures([(name, read(result, what)) for name, what in rows]) + after


def tabulate(rows: str, *columns: tuple[str, Read], before: str = "") -> Callable[[Result], str]:
    """One row for each element of a list in the result."""
    heads = [head for head, _ in columns]
    return lambda result: (
        before + table(heads, [[read(each, what) for _, what in columns] for each in result[rows]])
    )


def want_none(
    *rows: tuple[str, Read], notes: Mapping[str, str] | None = None
) -> Callable[[Result], list[Claim]]:
    """Claims that figures are 0; `notes` by their names."""

    def claim(result: Result) -> list[Claim]:
        figures = ((name, read(result, what)) for name, what in rows)
        return [
            Claim(name, "0", value, value == 0, (notes or {}).get(name, ""))
            for name, value in figures
        ]

    return claim


def _describe_traffic(result: Result) -> list[str]:
    wire, jobs, every_s = result["wire"]["bytes_per_look"], result["jobs"], result["every_s"]
    return [
        'The paper says that "SpecK does not generate any traffic unless the user emits requests".'
        f" Here every job costs {number(wire / jobs / every_s)} bytes a second while metrics are"
        " collected. `SPECK_METRICS_S=0` stops that, and with it analyses, placement and the"
        " autopilot; `SPECK_WATCH_S=0` stops the watch, which notices failed jobs and repairs them",
    ]


def _name_slowest(result: Result) -> str:
    rows = (row for row in result["faults"] if row["recovery_s"] is not None)
    slow = max(rows, key=lambda row: float(row["recovery_s"]))
    return f"{number(slow['recovery_s'])} s ({slow['fault']})"


def _claim_recovery(result: Result) -> list[Claim]:
    points, recovered = result["points"], result["recovered"]
    none = want_none(("two copies of a job", "two_copies"), ("records lost", "lost"))
    return [Claim("changes that go on", f"{points}", recovered, recovered == points), *none(result)]


def _compare_tls(result: Result) -> str:
    deploy = result["deploy"]
    keys = ("plain_s", "tls_s", "ratio")
    rows = [(f"deploying {deploy['jobs']} jobs, s", *(deploy[key] for key in keys))]
    for it in result["connector"]:
        figures = (it[key] for key in ("plain_msgs_per_s", "tls_msgs_per_s", "ratio"))
        rows.append((f"messages/s through a job, {it['bytes']} B", *figures))
    return "Medians of the rounds.\n\n" + table(["", ">plain", ">TLS", ">TLS to plain"], rows)


def _claim_truth(result: Result) -> list[Claim]:
    return [
        Claim(it["name"], it["set"], it["measured"], it["ok"], it["detail"])
        for it in result["items"]
    ]


def _claim_size(result: Result) -> list[Claim]:
    size, paper = result["bytes"], result["paper_bytes"]
    ok = size <= paper if result["jobs"] == 1000 else None
    return [Claim("bytes of 1000 jobs", f"<= {paper:,}, the paper's", size, ok)]


def _show_size(result: Result) -> Sequence[tuple[str, str]]:
    size, paper = (result[key] / 1e6 for key in ("bytes", "paper_bytes"))
    return [
        (f"State of {result['jobs']} jobs on disk", f"{size:.2f} MB (the paper's: {paper:.2f})")
    ]


SECTIONS = (
    Section(
        name="faults",
        title="Faults",
        question="What do crashes, partitions, hung sites and dying brokers do to the data?",
        set_up="Real Flink, Mosquitto and service on plain loopback; every fault while numbered"
        " records flow, most of them in the middle of a move.",
        target="faults",
        figures=list_figures(
            ("faults, in both kinds of delivery", lambda result: len(result["faults"])),
            ("records published", "published"),
            ("longest recovery", _name_slowest),
            ("lost where a queue is made to overflow, which is detected", "expected_loss"),
            after="\n\nEach fault by itself: [guarantees.md](../guarantees.md).",
        ),
        claims=want_none(
            ("records lost", "lost"),
            ("repeated under exactly_once", "repeated"),
            ("two copies of a job", "two_copies"),
            notes={"records lost": "the overflow apart"},
        ),
    ),
    Section(
        name="crash",
        title="The service dies",
        question="What is left of a change when the service is killed in the middle of it?",
        set_up="Real Flink, Mosquitto and service; it is killed at every point around every kind"
        " of operation and started again.",
        target="crash",
        figures=list_figures(
            ("points at which it dies", "points"),
            ("from death to the end of the change, median", of("median_recovery_s", "s")),
            ("the same, longest", of("max_recovery_s", "s")),
            ("records published meanwhile", "published"),
        ),
        claims=_claim_recovery,
    ),
    Section(
        name="exactly_once",
        title="Exactly once",
        question="What does `exactly_once` cost against `at_least_once`?",
        set_up="One job that passes records of 100 B on with QoS 1: results are published when"
        " their checkpoint completes, so latency is that of the checkpoints.",
        target="exactly-once",
        figures=tabulate(
            "intervals",
            ("checkpoint every", of("checkpoint_interval_s", "s")),
            (">exactly once, msgs/s", "msgs_per_s.exactly_once"),
            (">at least once, msgs/s", "msgs_per_s.at_least_once"),
            (">ratio", "ratio"),
            (">p50, ms: exactly", "p50_ms.exactly_once"),
            (">at least", "p50_ms.at_least_once"),
            (">p99, ms: exactly", "p99_ms.exactly_once"),
            (">at least", "p99_ms.at_least_once"),
        ),
        claims=want_none(("records lost", "lost"), ("records repeated", "repeated")),
    ),
    Section(
        name="connector",
        title="The MQTT connector",
        question="How many messages a second does one job carry, and how much is that of what a"
        " bare relay does?",
        set_up="Source, map and sink in Flink between two topics of one Mosquitto on loopback;"
        " broker and load on one core, the job or the relay on the other.",
        target="connector",
        figures=tabulate(
            "items",
            (">QoS", "qos"),
            (">payload", lambda it: f"{it['bytes']} B"),
            (">job, msgs/s", "msgs_per_s"),
            (">bare relay, msgs/s", "relay_msgs_per_s"),
            (">broker alone, msgs/s", "broker_msgs_per_s"),
            (">job to relay", "ratio"),
            (">job p50, ms", "p50_ms"),
            (">job p99, ms", "p99_ms"),
            (">relay p99, ms", "relay_p99_ms"),
            before="Medians of the rounds; latencies at half of the job's highest rate.\n\n",
        ),
        claims=want_none(("records lost", lambda it: sum(each["lost"] for each in it["items"]))),
    ),
    Section(
        name="tls",
        title="TLS",
        question="What do TLS and client certificates on every leg cost?",
        set_up="Deploying: two fogs of two sites, each with a service, take turns; one has TLS on"
        " every leg. Messages: one job in Flink at a plain listener of a Mosquitto, one at an"
        " encrypted one, in turns, at least once; broker and load on one core, the engine on the"
        " other. TLS 1.3, EC P-256.",
        target="tls",
        figures=_compare_tls,
    ),
    Section(
        name="collector",
        title="Measuring",
        question="What does it cost to measure 100 jobs all the time?",
        set_up="Real Flink and Mosquitto on plain loopback; CPU of the service with the collector"
        " and without it.",
        target="collector",
        figures=list_figures(
            ("jobs, sites", lambda result: f"{result['jobs']}, {result['sites']}"),
            ("all sites are polled every", of("every_s", "s")),
            ("share of one core for it", of("cpu.collector", "%", 100, ".1f")),
            ("bytes on the wire, a poll", "wire.bytes_per_look"),
            ("bytes on disk, a row of tasks", "disk.tasks.bytes_per_row"),
            ("a poll of one site, median", of("look_s.median", "ms", 1000, ".0f")),
        ),
        differences=_describe_traffic,
    ),
    Section(
        name="truth",
        title="Measured against set",
        question="Are the figures that placement goes by true?",
        set_up="Jobs whose cost and selectivity are set, on a site with a quarter of a core and"
        " one without a limit, real Flink and Mosquitto; what the analyzer says against what was"
        " set.",
        target="truth",
        figures=lambda result: (
            f"{sum(1 for it in result['items'] if it['ok'])} of {len(result['items'])} figures are"
            " as they were set."
        ),
        claims=_claim_truth,
        root=True,
    ),
    Section(
        name="store",
        title="The store",
        question="What does `kill -9` leave of synced writes?",
        set_up="A process that writes from several threads is killed at a random moment; the store"
        " is opened again and compared with what it had told.",
        target="store",
        figures=list_figures(("rounds", "rounds"), ("synced writes that were told", "writes_told")),
        claims=want_none(("writes lost", "lost"), ("writes torn", "torn")),
    ),
    Section(
        name="state",
        title="State on disk",
        question="How much does the service keep of a composition of 1000 jobs?",
        set_up="A real store, filled by the real service.",
        target="state",
        figures=list_figures(
            ("jobs", "jobs"),
            ("bytes on disk", "bytes"),
            ("bytes that the paper reports for its own", "paper_bytes"),
        ),
        claims=_claim_size,
        headline=_show_size,
        simulated=["engines and brokers (in memory)."],
    ),
)
