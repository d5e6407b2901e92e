"""bench.connector: messages through source, map and sink."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import table


def _figures(result: Result) -> str:
    rows = [
        (
            it["qos"],
            f"{it['bytes']} B",
            it["msgs_per_s"],
            it["relay_msgs_per_s"],
            it["broker_msgs_per_s"],
            it["ratio"],
            it["p50_ms"],
            it["p99_ms"],
            it["relay_p99_ms"],
        )
        for it in result["items"]
    ]
    heads = [
        ">QoS",
        ">payload",
        ">job, msgs/s",
        ">bare relay, msgs/s",
        ">broker alone, msgs/s",
        ">job to relay",
        ">job p50, ms",
        ">job p99, ms",
        ">relay p99, ms",
    ]
    text = "Medians of the rounds; latencies at half of the job's highest rate."
    return f"{text}\n\n{table(heads, rows)}"


def _claims(result: Result) -> Sequence[Claim]:
    lost = sum(it["lost"] for it in result["items"])
    return [Claim("records lost", "0", lost, lost == 0)]


SECTION = Section(
    name="connector",
    title="The MQTT connector",
    question="How many messages a second does one job carry, and how much is that of what a bare"
    " relay does?",
    set_up="Source, map and sink in Flink between two topics of one Mosquitto on loopback; broker"
    " and load on one core, the job or the relay on the other.",
    target="connector",
    figures=_figures,
    claims=_claims,
)
