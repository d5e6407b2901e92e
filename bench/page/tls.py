"""bench.tls: what TLS with client certificates costs."""

from __future__ import annotations

from bench.page.result import Result
from bench.page.section import Section
from bench.page.words import table


def _figures(result: Result) -> str:
    deploy = result["deploy"]
    rows = [
        (
            f"deploying {deploy['jobs']} jobs, s",
            deploy["plain_s"],
            deploy["tls_s"],
            deploy["ratio"],
        ),
        *(
            (
                f"messages/s through a job, {it['bytes']} B",
                it["plain_msgs_per_s"],
                it["tls_msgs_per_s"],
                it["ratio"],
            )
            for it in result["connector"]
        ),
    ]
    return "Medians of the rounds.\n\n" + table(["", ">plain", ">TLS", ">TLS to plain"], rows)


SECTION = Section(
    name="tls",
    title="TLS",
    question="What do TLS and client certificates on every leg cost?",
    set_up="Deploying: two fogs of two sites, each with a service, take turns; one has TLS on every"
    " leg. Messages: one job in Flink at a plain listener of a Mosquitto, one at an encrypted one,"
    " in turns, at least once; broker and load on one core, the engine on the other. TLS 1.3, EC"
    " P-256.",
    target="tls",
    figures=_figures,
)
