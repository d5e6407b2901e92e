"""Chains that change while a third of the changes is cancelled or superseded at a random moment.

One site; one to three jobs of four names in line, over three links, at 50 numbered records a second
from a publisher outside speck. A change is cancelled as soon as so many of its operations are done;
one that is to be superseded blocks, since the network refuses the service's connections to the
engine from that moment on, or lets nothing through, until the next change is asked for. What comes
at the end of the chain is counted as in `bench.rewire`; what was under way in an interrupted change
is expected once, too.

    python -m bench.cancels --changes 40
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.common import RAW, Api, fog_with_service, say
from bench.experiment import percentile
from bench.instruments.checker import Checker
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from bench.instruments.proxy import Mode, Proxy
from speck.errors import SpeckError
from speck.fog.site_record import MOSQUITTO
from speck.fog.sites import Fog
from speck.model.values import JsonObject

SITE = "edge-a"
NAMES, LINKS = "abcd", ("m1", "m2", "m3")
RATE = 50.0
MOST_OPERATIONS = 10
PATIENCE_S = 240.0
BLOCKED_S = 60.0
"""Until a change blocks whose engine does not answer."""
CUTS: tuple[Mode, ...] = ("refuse", "refuse", "refuse", "refuse", "blackhole")
"""How the engine is cut off; a request into a black hole takes a minute to fail."""
_OVER = ("done", "failed", "cancelled")


def draw_chain(dice: random.Random) -> str:
    """A chain in one line of text: `a:in>m1 b:m1>out`."""
    names = dice.sample(NAMES, dice.randint(1, 3))
    between = dice.sample(LINKS, len(names) - 1)
    ends = zip(names, ["in", *between], [*between, "out"], strict=True)
    return " ".join(f"{name}:{source}>{sink}" for name, source, sink in ends)


def make_composition(run: str, line: str, delivery: str, links_at: str = SITE) -> JsonObject:
    """The composition of a line; `run` names it, and begins every name and topic. All links are at
    one site."""
    jobs = []
    for word in line.split():
        name, _, links = word.partition(":")
        source, _, sink = links.partition(">")
        jobs.append(
            {
                "job_name": f"{run}-{name}",
                "site": SITE,
                "source_site": links_at,
                "source_topic": f"{run}.{source}",
                "sink_site": links_at,
                "sink_topic": f"{run}.{sink}",
                "entry_class": "io.speck.jobs.PassThrough",
                "job_path": "speck-jobs.jar",
                "delivery": delivery,
            }
        )
    out = {"site": links_at, "topic": f"{run}.out", "client_id": f"{run}-out"}
    inputs = [{"site": links_at, "topic": f"{run}.in"}]
    return {"name": run, "jobs": jobs, "inputs": inputs, "outputs": [out]}


@dataclass(slots=True)
class Stream:
    """A composition that changes while numbered records go through it."""

    proxy: Proxy
    """Between the service and the engine."""
    api: Api
    run: str
    delivery: str
    feed: Feed
    end: Checker
    log: Path
    links_at: str = SITE
    ends: Counter[str] = field(default_factory=Counter)
    """How the changes ended."""
    gaps: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    def complete(self, line: str) -> None:
        """Make a change, and wait until what is published after it comes out. It may be asked for
        twice: the plan may be out of date when a site answers again. Raises RuntimeError."""
        began = time.monotonic()
        view = self._await(self._ask(line))
        if view["state"] != "done":
            view = self._await(self._ask(line))
        self._note(line, view)
        if view["state"] != "done":
            raise RuntimeError(f"the change to {line} is {view['state']}: {view['error']}")
        self.took.append(time.monotonic() - began)
        self.end.await_past(self.feed.sent + 20, PATIENCE_S)
        self.gaps.append(self.end.longest_silence(began))

    def cancel(self, line: str, after: int) -> None:
        """Cancel a change once so many operations are done."""
        change = self._ask(line)
        self._await_progress(change, after)
        answer = self.api.session.post(f"{self.api.url}/changes/{change}/cancel", timeout=60)
        if answer.status_code not in (200, 202, 409):  # 409: it was done before
            raise RuntimeError(f"cannot cancel {change}: {answer.text[:500]}")
        self._note(line, self._await(change))

    def supersede(self, line: str, after: int, by: str, cut: Mode) -> None:
        """Let a change block after so many operations, and another one take its place."""
        change = self._ask(line)
        self._await_progress(change, after)
        with self._cut_off(cut):
            self._await(change, (*_OVER, "blocked"), BLOCKED_S)
            by_change = self._take_place(by)
        if not by_change:  # it was not blocked: it waits for nothing that the engine does
            self._note(line, self._await(change))
            return
        self._note(line, self._await(change))
        self._note(by, self._await(by_change))

    def _take_place(self, line: str) -> str:
        """Ask for a change until the blocked one gives way, which may be trying again at the
        moment; empty if it does not."""
        until = time.monotonic() + BLOCKED_S
        while time.monotonic() < until:
            try:
                return self._ask(line)
            except RuntimeError as error:
                if ": 409 " not in str(error):
                    raise
            time.sleep(0.2)
        return ""

    def _ask(self, line: str) -> str:
        body = make_composition(self.run, line, self.delivery, self.links_at)
        answer = self.api.call("POST", "/compositions", body, wait=0, force="true")
        with self.log.open("a") as file:
            file.write(f"\n{line}\n{answer['plan']['text']}\n")
        return str(answer["change"] or "")

    def _await_progress(self, change: str, after: int) -> None:
        """Wait until so many operations are done, or the change is over."""
        until = time.monotonic() + PATIENCE_S
        while change and time.monotonic() < until:
            view = self.api.call("GET", f"/changes/{change}")
            done = sum(each["state"] == "done" for each in view["operations"])
            if done >= after or view["state"] in _OVER:
                return
            time.sleep(0.02)

    def _await(
        self, change: str, states: Sequence[str] = _OVER, limit_s: float = PATIENCE_S
    ) -> JsonObject:
        until = time.monotonic() + limit_s
        view: JsonObject = {"state": "done", "error": None, "operations": []}
        while change:
            view = self.api.call("GET", f"/changes/{change}")
            if view["state"] in states or time.monotonic() > until:
                break
            time.sleep(0.1)
        return view

    def _note(self, line: str, view: JsonObject) -> None:
        state = "superseded" if view.get("superseded_by") else str(view["state"])
        self.ends[state] += 1
        say(f"{state}: {line}")
        with self.log.open("a") as file:
            file.write(f"{state}: {line} {view['error'] or ''}, sent {self.feed.sent}\n")
            if state not in _OVER:  # what it waits for
                file.write(f"{json.dumps(view, indent=1)}\n")

    @contextmanager
    def _cut_off(self, how: Mode) -> Iterator[None]:
        """The engine does not answer the service until the block ends."""
        self.proxy.set(how)
        try:
            yield
        finally:
            self.proxy.set()


@contextmanager
def _apart(fog: Fog, api: Api) -> Iterator[Proxy]:
    """The service reaches the engine through a proxy."""
    body = next(body for body in fog.site_bodies() if body["name"] == SITE)
    engine = urlsplit(body["spe"]["address"])
    assert engine.hostname and engine.port
    with Proxy(engine.hostname, (engine.hostname, engine.port)) as proxy:
        through = {**body, "spe": {**body["spe"], "address": proxy.http}}
        api.call("PUT", f"/sites/{SITE}", through)
        yield proxy
        api.call("PUT", f"/sites/{SITE}", body)


@contextmanager
def streaming(
    fog: Fog, api: Api, run: str, delivery: str, first: str, links_at: str = SITE
) -> Iterator[Stream]:
    """Apply the first wiring, and send records through it, the first of which have come out."""
    broker = next(site.broker_address for site in fog.sites() if site.name == links_at)
    log = RAW / f"{run}.log"
    RAW.mkdir(exist_ok=True)
    log.write_text(f"at first: {first}\n")
    body = make_composition(run, first, delivery, links_at)
    api.call("POST", "/compositions", body, wait=300)
    with ExitStack() as stack:
        proxy = stack.enter_context(_apart(fog, api))
        end = stack.enter_context(Checker(broker, f"{run}.out", f"{run}-out"))
        feed = stack.enter_context(Feed(broker, f"{run}.in", rate=RATE, run=run))
        end.await_past(int(2 * RATE), PATIENCE_S)
        yield Stream(proxy, api, run, delivery, feed, end, log, links_at)


def change_at_random(stream: Stream, dice: random.Random, change_count: int) -> None:
    """Make so many changes; a third of them is interrupted, each followed by another wiring."""
    made = 0
    while made < change_count:
        line = draw_chain(dice)
        after = dice.randint(1, MOST_OPERATIONS)
        roll = dice.random()
        if roll < 2 / 3 or made == change_count - 1:
            stream.complete(line)
        elif roll < 5 / 6:
            stream.cancel(line, after)
        else:
            stream.supersede(line, after, by=draw_chain(dice), cut=dice.choice(CUTS))
            made += 1
        made += 1
    stream.complete(draw_chain(dice))


def measure(
    fog: Fog, api: Api, delivery: str, change_count: int, seed: int, links_at: str = SITE
) -> JsonObject:
    """The counts after so many random changes."""
    dice = random.Random(f"{seed} cancels {delivery}")
    run = f"cancels-{delivery.replace('_', '-')}"
    engines = {site.name: site.engine_address for site in fog.sites()}
    fault = ""
    with (
        DuplicateMonitor(engines) as witness,
        streaming(fog, api, run, delivery, draw_chain(dice), links_at) as stream,
    ):
        try:
            change_at_random(stream, dice, change_count)
        except (RuntimeError, SpeckError) as error:  # what was counted so far is shown all the same
            fault = str(error)
            say(f"ended: {fault}")
        count = _count(stream)
        result = {
            "changes": stream.ends.total(),
            "ends": dict(stream.ends),
            "bytes_resent": None,  # nobody listens to the links
            "two_copies": len(witness.two_copies()),
            "gap_s": _spread(stream.gaps),
            "change_s": _spread(stream.took),
            "delivery": delivery,
            "fault": fault,
            **count,
        }
    api.call("DELETE", f"/compositions/{run}", wait=600, drop_queues="true", drain_limit=0)
    return result


def _count(stream: Stream) -> JsonObject:
    published = stream.feed.end()
    stream.end.await_all(published)
    count = stream.end.count(published)
    names = ("lost", "repeated", "stray", "reordered", "first_lost", "first_repeated")
    counts = {name: getattr(count, name) for name in names}
    return {"published": published, "repeated_outside": count.dropped, **counts}


def _spread(values: Sequence[float]) -> JsonObject:
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    found = {name: percentile(values, share) for name, share in shares.items()}
    return {name: value and round(value, 3) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--delivery", default="at_least_once")
    parser.add_argument("--broker", default=MOSQUITTO, help="kafka: links at a cloud with Kafka")
    options = parser.parse_args()
    is_apart = options.broker != MOSQUITTO
    links_at = "cloud" if is_apart else SITE
    with fog_with_service(1, int(is_apart), 8, cloud_broker=options.broker) as (fog, api):
        result = measure(fog, api, options.delivery, options.changes, options.seed, links_at)
    print(json.dumps(result, indent=1))
    return 1 if result["lost"] or result["repeated"] else 0


if __name__ == "__main__":
    sys.exit(main())
