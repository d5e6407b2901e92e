"""What TLS with client certificates costs: deploying 100 jobs, and messages/s through a job.

Deploying: two fogs of two sites and two services, one of each with every leg encrypted. They take
turns in deploying the same chain of jobs, until all run, and removing it.
Connector: one broker with a plain and an encrypted listener, one engine with a job at each. They
take turns; the load generator uses the plain listener for both. Of each, the median of `ROUNDS`
rounds; a run that loses a message is no result.

`make bench-tls` writes bench/results/tls.json; QUICK=1 deploys ten jobs and takes short rounds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from secrets import token_hex

from bench.chains import CHECKPOINT_S, MOST_S, chain
from bench.common import end_well_when_told, is_quick, machine, say, write_result
from bench.connector import WINDOW
from bench.load import Measured, Order
from bench.runner import RECEIVE_MAXIMUM, Job, Lab, lab, list_rates, rate, submitted, take_turns
from speck.client import Client
from speck.fog.paths import edge_jar
from speck.fog.ports import pick_port
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from speck.tls.identity import SERVICE, Identity, issue_all

QUICK = is_quick()
JOBS = 10 if QUICK else 100
ROUNDS = 1 if QUICK else 3
SECONDS = 1.0 if QUICK else 4.0
LEAD_S = 0.3 if QUICK else 0.5
WARM_UP_S = 1.0 if QUICK else 9.0
PAYLOADS = (100,) if QUICK else (100, 1000)
VARIANTS = ("plain", "tls")


@dataclass(slots=True)
class Site:
    """A fog, a client of its service, and the newest revision of the chain there."""

    fog: Fog
    client: Client
    revision: int = 0


@contextmanager
def deployed_by(variant: str, folder: Path) -> Iterator[Site]:
    """A fog and a service of their own."""
    home = folder / "home"
    identity = Identity(home / "ca", SERVICE) if variant == "tls" else None
    fog = Fog(folder / "fog")
    with ExitStack() as stack:
        stack.callback(fog.down)
        fog.up(
            edges=2,
            slots=JOBS,
            clouds=0,
            checkpoint_interval_s=CHECKPOINT_S,
            authority=identity.authority if identity else None,
        )
        fog.write_credentials(home / "credentials")
        jars = [edge_jar("speck-jobs.jar").parent]
        served = stack.enter_context(serving(home, jars, tls=identity))
        client = stack.enter_context(Client(served.url, tls=served.tls))
        for body in fog.site_bodies():
            client.add_site(body)
        yield Site(fog, client)


def deploy(site: Site) -> float:
    """Seconds from the request until all jobs of a chain run; they are removed again."""
    document = json.dumps(chain(site.fog, JOBS)).encode()
    started = time.monotonic()
    answer = site.client.apply(
        document, "application/json", revision=site.revision, key=token_hex(8)
    )
    _await(site.client, answer["change"])
    seconds = time.monotonic() - started
    site.revision = answer["revision"]
    removal = site.client.destroy("chain", revision=site.revision, drop_queues=True, drain_limit=0)
    _await(site.client, removal["change"])
    return seconds


def _await(client: Client, change_id: str) -> None:
    deadline = time.monotonic() + MOST_S
    while (change := client.change(change_id))["state"] == "running":
        if time.monotonic() > deadline:
            raise RuntimeError(f"cannot end change {change_id} within {MOST_S:g} s")
        time.sleep(0.05)
    if change["state"] != "done":
        raise RuntimeError(f"cannot carry out change {change_id}: {change['error']}")


def measure_deploying(folder: Path) -> JsonObject:
    """The `deploy` of the result."""
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with ExitStack() as stack:
        sites = {
            variant: stack.enter_context(deployed_by(variant, folder / variant))
            for variant in VARIANTS
        }
        for site in sites.values():  # the first run of each warms up its engines
            deploy(site)
        for number in range(ROUNDS):
            for variant, site in sites.items():
                seconds[variant].append(deploy(site))
                say(f"deploy round {number + 1} {variant:5} {seconds[variant][-1]:.2f} s")
    medians = {variant: statistics.median(each) for variant, each in seconds.items()}
    return {
        "jobs": JOBS,
        "plain_s": round(medians["plain"], 2),
        "tls_s": round(medians["tls"], 2),
        "ratio": round(medians["tls"] / medians["plain"], 3),
        "rounds": {variant: [round(s, 2) for s in each] for variant, each in seconds.items()},
    }


@contextmanager
def connected(folder: Path) -> Iterator[Lab]:
    """A job at each listener of one broker."""
    issue_all(folder / "ca", {"bench": "127.0.0.1"})
    identity = Identity.of_site(folder / "ca", "bench")
    port, credentials = pick_port("127.0.0.1"), folder / "credentials"
    secured = "\n".join(f"{key} {value}" for key, value in identity.broker_settings().items())
    identity.write_credentials(credentials / "broker", [f"ssl://127.0.0.1:{port}"])
    listener = {"listener": f"{port} 127.0.0.1\n{secured}"}
    with (
        lab(
            folder, WINDOW, 1.0, slots=2, broker_settings=listener, credentials=credentials
        ) as running,
        ExitStack() as stack,
    ):
        broker = running.broker
        brokers = {"plain": broker, "tls": replace(broker, port=port, encrypted=True)}
        windows = {"receive-maximum": str(RECEIVE_MAXIMUM), "sink-window": str(WINDOW)}
        for variant in VARIANTS:
            job = Job(*_topics(variant), "at_least_once", windows)
            stack.enter_context(submitted(running.engine, brokers[variant], job))
        yield running


def measure_connector(folder: Path) -> list[JsonObject]:
    """The `connector` of the result."""
    with connected(folder) as running:

        def measure(key: tuple[int, str], lead_s: float, seconds: float) -> Measured:
            payload, variant = key
            order = Order(*_topics(variant), 1, payload, WINDOW, 0, lead_s, seconds)
            return running.run(variant, order)

        def measure_and_say(number: int, key: tuple[int, str]) -> Measured:
            result = measure(key, LEAD_S, SECONDS)
            say(f"{key[0]:4} B round {number} {key[1]:5} {result.msgs_per_s:8.0f}/s")
            return result

        keys = list(product(PAYLOADS, VARIANTS))
        for key in keys:
            measure(key, WARM_UP_S, 0.1)
        results = take_turns(ROUNDS, keys, measure_and_say)
    return [
        _connector_entry(payload, {each: results[payload, each] for each in VARIANTS})
        for payload in PAYLOADS
    ]


def _connector_entry(payload: int, results: Mapping[str, Sequence[Measured]]) -> JsonObject:
    return {
        "bytes": payload,
        "plain_msgs_per_s": round(rate(results["plain"])),
        "tls_msgs_per_s": round(rate(results["tls"])),
        "ratio": round(rate(results["tls"]) / rate(results["plain"]), 3),
        "rounds": {variant: list_rates(each) for variant, each in results.items()},
    }


def _topics(variant: str) -> tuple[str, str]:
    return f"bench/{variant}", f"bench/{variant}/out"


def main() -> None:
    end_well_when_told()
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        connector = measure_connector(Path(folder) / "connector")
        deploying = measure_deploying(Path(folder) / "deploy")
    content = {"deploy": deploying, "connector": connector, "settings": {"machine": machine()}}
    write_result("tls.json", content)


if __name__ == "__main__":
    main()
