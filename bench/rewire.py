"""Rewiring under load: a chain with a branch gets other jobs, another order, other sites, topics
and brokers, again and again, while 1000 numbered records a second go through it.

What is counted, for each delivery mode (bench/wirings.py says which wirings, and why every record
is expected once at each of the two outputs):

- `lost`, `repeated`: by the publisher's numbers, at both outputs together, for a reader that drops
  repeats by their stamps, as our sources do (bench.instruments.checker);
- `repeated_outside`: messages under a stamp that had come before, at both outputs: what a reader
  outside speck sees twice that does not look at stamps;
- `bytes_resent`: payload bytes, on all links, of messages under a stamp that had been published
  before (bench/taps.py says how, and what a tap may hide);
- `two_copies`: jobs of which two incarnations were alive at once;
- `gap_s`: the longest silence at `out` of each change.

Then the same under `exactly_once` while an engine, a broker or the service is killed within 2 s
after each change was asked for, and started again at once. And once more with kills of brokers
only, while each output has a second reader, whose session is reserved, and which comes for the
first time when all is over (`absent_readers`): what waits for it is counted, too. Finally chains,
with a third of the changes cancelled or superseded (`with_cancels`; see bench/cancels.py).

Every change with its plan goes to bench/raw/rewire-<run>.log. What is lost or repeated is put down
to the change in which it was under way; what came twice also to the change in which it came.

`make bench-rewire` writes bench/results/rewire.json, after each series what there is by then, and
skips the series that were measured from this code; QUICK=1 makes four changes in each mode and two
with kills. It takes some 80 minutes; one series, even if it was measured:

    python -m bench.rewire --series with_kills

Trials print what they find and write nothing:

    python -m bench.rewire --changes 6 --delivery exactly_once
    python -m bench.rewire --kills 5 --seed 7
    python -m bench.rewire --absent 3
    python -m bench.rewire --kills 5 --broker kafka    # the cloud has Kafka, without taps
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import requests

from bench import cancels
from bench.common import (
    RAW,
    RESULTS,
    Api,
    find_code,
    fog_with_service,
    is_quick,
    machine,
    say,
    write_result,
)
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from bench.kills import KINDS, Mortal, insist, mortal_fog
from bench.rewire_counts import Change, Output, blame_changes, faults_of, spread
from bench.taps import Taps
from bench.wirings import ABSENT, IN, OUT, OUT2, Place, first_wiring, next_wiring, topic_of
from speck.errors import SpeckError
from speck.fog.site_record import MOSQUITTO
from speck.fog.sites import Fog
from speck.model.values import JsonObject

MODES = ("exactly_once", "at_least_once", "at_most_once")
WITH_KILLS = "with_kills"
ABSENT_READERS = "absent_readers"
WITH_CANCELS = "with_cancels"
RATE = 1000
CHANGES, KILLS, ABSENT_KILLS, CANCELLING = 200, 100, 10, 300
SLOTS = 16
"""All jobs of two wirings may meet at one site."""
CHECKPOINT_S = 1.0
KILL_WITHIN_S = 2.0
PATIENCE_S, PATIENCE_KILLED_S = 180.0, 400.0
"""Until a change is done, and again until what was published after it is out."""
BROKERS = ("broker",)
ALL_S = 900.0
"""Until all is out at an end: for a reader that was away that is everything."""
_OVER = ("done", "failed", "cancelled")


@dataclass(slots=True)
class Run:
    """One delivery mode while it is measured. `mortal`: where something is killed in each change,
    None: nothing is; `taps`: None where nobody listens to the links."""

    api: Api
    dice: random.Random
    feed: Feed
    ends: Sequence[Output]
    taps: Taps | None
    log: Path
    rate: float
    mortal: Mortal | None
    kinds: Sequence[str] = KINDS
    changes: list[Change] = field(default_factory=list)

    def change(self, composition: JsonObject, wiring: str) -> None:
        """Apply, and wait until what was published after it is out at both ends.

        Raises RuntimeError or SpeckError when the change is not done or nothing comes out.
        """
        first = {end.name: end.highest + 1 for end in self.ends}
        change = Change(len(self.changes) + 1, wiring, first)
        self.changes.append(change)
        for each in [end.tally for end in self.ends]:
            each.during = change.number
        if self.taps:
            self.taps.mark(change.number)
        began = time.monotonic()
        try:
            self._make(change, composition)
            change.took_s = time.monotonic() - began
            for end in self.ends:
                end.await_past(self.feed.sent + int(self.rate / 2), self._patience_s)
            if self.taps:
                self.taps.join_all()
        finally:
            change.gap_s = self.ends[0].longest_silence(began)
            with self.log.open("a") as file:
                file.write(f"{change}\nfirst not out: {change.first}\n{change.plan}\n\n")
        say(str(change))

    def _make(self, change: Change, composition: JsonObject) -> None:
        until = time.monotonic() + self._patience_s
        leave = self.taps.leave if self.taps else _nothing
        if self.mortal is None:
            change.state = self._apply(composition, change, until)
        else:
            with ThreadPoolExecutor(1) as pool:
                applying = pool.submit(self._apply, composition, change, until)
                after = self.dice.uniform(0.0, KILL_WITHIN_S)
                time.sleep(after)  # when the fault comes
                what = self.mortal.strike(self.dice, leave, self.kinds)
                change.killed = f"{what} after {after:.1f} s"
                change.state = applying.result()
        if change.state != "done":
            why = next((line for line in change.plan.splitlines() if ": failed " in line), "")
            raise RuntimeError(f"change {change.number} is {change.state}: {why}")

    def _apply(self, composition: JsonObject, change: Change, until: float) -> str:
        """Apply; the state in which the change ended. During kills a failed change is requested
        again."""
        while True:
            answer = self._post(composition, until)
            change.plan += answer["plan"]["text"] + "\n"
            view = self._followed(answer["change"], until)
            change.plan += _operations(view) + "\n"
            again = self.mortal is not None and time.monotonic() < until
            if view["state"] == "done" or not again:
                return str(view["state"])
            say(f"change {change.number} is {view['state']}, asked for again: {view['error']}")

    def _post(self, composition: JsonObject, until: float) -> JsonObject:
        """After a lost answer the request is sent again under its key: the change is made once."""
        query = {"wait": 0, "force": "true"}  # force: it may name none of the jobs of before
        headers = {"Idempotency-Key": secrets.token_hex(8)}
        url = f"{self.api.url}/compositions"
        answer = insist(
            lambda: requests.post(url, json=composition, params=query, headers=headers, timeout=60),
            until,
        )
        if not answer.ok:
            raise RuntimeError(f"POST {url}: {answer.status_code} {answer.text[:2000]}")
        body: JsonObject = answer.json()
        return body

    def _followed(self, change: str, until: float) -> JsonObject:
        """The change once it is over, or as it is at `until`."""
        url = f"{self.api.url}/changes/{change}"
        while True:
            view: JsonObject = insist(lambda: requests.get(url, timeout=60), until).json()
            if view["state"] in _OVER or time.monotonic() > until:
                return view
            time.sleep(0.1)

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S if self.mortal is None else PATIENCE_KILLED_S


def _nothing(_: str) -> None:
    return


def _operations(view: JsonObject) -> str:
    """The operations of a change, one on each line."""
    return "\n".join(
        f"{it['started'] or '-'} {it['ended'] or '-'} #{it['id']} {it['kind']}"
        f" {it['job_name'] or ''} at {it['site'] or ''}: {it['state']} {it['error'] or ''}"
        for it in view["operations"]
    )


def run(
    fog: Fog,
    api: Api,
    delivery: str,
    change_count: int,
    *,
    seed: int,
    rate: float = RATE,
    mortal: Mortal | None = None,
    tapped: bool = True,
    absent: bool = False,
) -> JsonObject:
    """Rewires `wanted` times under load and counts. With `absent` each output has a second reader
    that comes at the end, and only brokers are killed."""
    brokers = {site.name: site.broker_address for site in fog.sites()}
    engines = {site.name: site.engine_address for site in fog.sites()}
    dotted = [site.name for site in fog.sites() if site.broker != MOSQUITTO]
    suffix = ABSENT if absent else "-kills" if mortal else ""
    name = f"rewire-{delivery.replace('_', '-')}{suffix}"
    dice = random.Random(f"{seed} {name}")
    wiring = first_wiring(dice)
    log = RAW / f"{name}.log"
    RAW.mkdir(exist_ok=True)
    log.write_text(f"seed {seed}, at first: {wiring}\n\n")
    first = wiring.composition(name, delivery, absent=absent, dotted=dotted)
    api.call("POST", "/compositions", first, wait=300)
    with ExitStack() as stack:
        taps = stack.enter_context(Taps(brokers, name)) if tapped and not dotted else None
        witness = stack.enter_context(DuplicateMonitor(engines))

        def output(place: Place, reader: str = "") -> Output:
            topic = topic_of(name, place, dotted)
            return stack.enter_context(Output(brokers[place[0]], name, place, topic, reader))

        ends = [output(place) for place in (OUT, OUT2)]
        feed = stack.enter_context(Feed(brokers[IN[0]], f"{name}/{IN[1]}", rate=rate, run=name))
        kinds = BROKERS if absent else KINDS
        current = Run(api, dice, feed, ends, taps, log, rate, mortal, kinds)
        fault = ""
        try:
            for end in ends:
                end.await_past(int(3 * rate), PATIENCE_S)
            for _ in range(change_count):
                wiring = next_wiring(dice, wiring)
                composition = wiring.composition(name, delivery, absent=absent, dotted=dotted)
                current.change(composition, str(wiring))
        except (RuntimeError, SpeckError, requests.RequestException) as error:
            # what was counted so far is shown all the same
            fault = str(error)
            say(f"{delivery} ended after {len(current.changes)} changes: {fault}")
        published = feed.end()
        if absent:
            current.ends = [*ends, *(output(place, ABSENT) for place in (OUT, OUT2))]
        for end in current.ends:
            end.await_all(published, timeout_s=ALL_S)
        result = _result(current, delivery, published, witness, fault)
    api.call("DELETE", f"/compositions/{name}", wait=600, drop_queues="true", drain_limit=0)
    return result


def _result(
    run: Run, delivery: str, published: int, witness: DuplicateMonitor, fault: str
) -> JsonObject:
    counts = [end.count(published) for end in run.ends]
    for line in blame_changes(run.changes, run.ends, published, run.taps):
        say(line)
    stamps = run.taps.stamps if run.taps else None
    done_changes = [change for change in run.changes if change.state == "done"]
    if two := witness.two_copies():
        say(f"two copies of {', '.join(two)}")
    return {
        "changes": len(done_changes),
        "bytes_resent": stamps and stamps.bytes_resent,
        "published": published,
        "lost": sum(count.lost for count in counts),
        "repeated": sum(count.repeated for count in counts),
        "repeated_outside": sum(count.dropped for count in counts),
        "two_copies": len(two),
        "gap_s": spread([change.gap_s for change in done_changes]),
        "change_s": spread([change.took_s for change in done_changes]),
        "delivery": delivery,
        "fault": fault,
        "stray": sum(count.stray for count in counts),
        "reordered": sum(count.reordered for count in counts),
        "resent_by_publisher": run.feed.resent,
        "messages_tapped": stamps and stamps.messages,
        "bytes_tapped": stamps and stamps.size,
        "tap_missed": stamps and stamps.missed,
        **({"killed": dict(run.mortal.killed)} if run.mortal else {}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--changes", type=int, help=f"in each mode ({CHANGES})")
    parser.add_argument("--kills", type=int, help=f"changes in which something dies ({KILLS})")
    parser.add_argument("--absent", type=int, help=f"kills of brokers ({ABSENT_KILLS})")
    parser.add_argument("--delivery", choices=MODES, help="only this mode")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--rate", type=float, default=RATE, help="records a second")
    parser.add_argument("--no-tap", action="store_true", help="do not listen to the links")
    parser.add_argument(
        "--series",
        choices=(*MODES, WITH_KILLS, ABSENT_READERS, WITH_CANCELS),
        nargs="+",
        help="measure only these, in full, and keep the others of bench/results/rewire.json",
    )
    parser.add_argument("--broker", default=MOSQUITTO, help="the cloud's, in trials")
    options = parser.parse_args()
    how = {"seed": options.seed, "rate": options.rate, "tapped": not options.no_tap}
    numbers = (options.changes, options.kills, options.absent)
    is_trial = options.delivery or any(number is not None for number in numbers)
    is_trial = is_trial or options.broker != MOSQUITTO
    if is_trial or how != {"seed": 5, "rate": RATE, "tapped": True}:
        return _trial(options, how)
    changes, kills, absent_kills = (4, 2, 2) if is_quick() else (CHANGES, KILLS, ABSENT_KILLS)
    cancelling = 6 if is_quick() else CANCELLING
    counts = {
        **dict.fromkeys(MODES, changes),
        WITH_KILLS: kills,
        ABSENT_READERS: absent_kills,
        WITH_CANCELS: cancelling,
    }
    facts = {
        "wanted_changes": changes,
        "wanted_kills": kills,
        "wanted_absent_kills": absent_kills,
        "wanted_cancelling": cancelling,
        "rate_per_s": RATE,
        "checkpoint_interval_s": CHECKPOINT_S,
        "seed": options.seed,
        "machine": machine(),
    }
    other_series = {} if is_quick() else _load_series()
    code = find_code()
    clean = not code.endswith("+")
    missing = [n for n in counts if not clean or other_series.get(n, {}).get("code") != code]
    selection = {name: counts[name] for name in options.series or missing}
    wrong: list[str] = []
    for name, result in _measure_series(selection, how):
        wrong += _report_faults(name, result, counts[name])
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        other_series[name] = {**result, "at": at, "code": code}
        nested = {key: value for key, value in other_series.items() if key != MODES[0]}
        write_result("rewire.json", {**other_series.get(MODES[0], {}), **nested, **facts})
    return 1 if wrong else 0


def _trial(options: argparse.Namespace, how: JsonObject) -> int:
    """Print the measurements, and write nothing."""
    changes, kills, absent = options.changes, options.kills, options.absent
    if changes is None:
        only_kills = kills is not None or absent is not None
        changes = 0 if only_kills and not options.delivery else 4
    modes = [options.delivery] if options.delivery else MODES
    counts = {
        **(dict.fromkeys(modes, changes) if changes else {}),
        WITH_KILLS: kills or 0,
        ABSENT_READERS: absent or 0,
    }
    results, wrong = {}, []
    for name, result in _measure_series(counts, how, options.broker):
        results[name] = result
        wrong += _report_faults(name, result, counts[name])
    print(json.dumps(results, indent=1))
    return 1 if wrong else 0


def _measure_series(
    counts: Mapping[str, int], how: JsonObject, broker: str = MOSQUITTO
) -> Iterator[tuple[str, JsonObject]]:
    """Each series with its result; `wanted` says how many changes each has."""
    modes = [name for name in MODES if counts.get(name)]
    if modes:
        with fog_with_service(2, 1, SLOTS, CHECKPOINT_S, cloud_broker=broker) as (fog, api):
            for mode in modes:
                yield mode, run(fog, api, mode, counts[mode], **how)
    if counts.get(WITH_KILLS):
        with mortal_fog(SLOTS, CHECKPOINT_S, broker) as mortal:
            kills = counts[WITH_KILLS]
            yield WITH_KILLS, run(mortal.fog, mortal.api, MODES[0], kills, mortal=mortal, **how)
    if counts.get(ABSENT_READERS):
        with mortal_fog(SLOTS, CHECKPOINT_S, broker) as mortal:
            how = {**how, "mortal": mortal, "absent": True}
            yield (
                ABSENT_READERS,
                run(mortal.fog, mortal.api, MODES[0], counts[ABSENT_READERS], **how),
            )
    if counts.get(WITH_CANCELS):
        with fog_with_service(1, 0, SLOTS, CHECKPOINT_S) as (fog, api):
            seed = how["seed"]
            yield WITH_CANCELS, cancels.measure(fog, api, MODES[1], counts[WITH_CANCELS], seed)


def _report_faults(name: str, result: JsonObject, change_count: int) -> list[str]:
    """Print and return the deviations of a result from the expectations."""
    wrong = [f"{name}: {fault}" for fault in faults_of(result, change_count)]
    for fault in wrong:
        say(f"NOT as wanted: {fault}")
    return wrong


def _load_series() -> JsonObject:
    """The series of the last result."""
    file = RESULTS / "rewire.json"
    if not file.exists():
        return {}
    result: JsonObject = json.loads(file.read_text())
    series = {
        name: result.pop(name)
        for name in (*MODES[1:], WITH_KILLS, ABSENT_READERS, WITH_CANCELS)
        if name in result
    }
    return {**series, MODES[0]: result} if "changes" in result else series


if __name__ == "__main__":
    sys.exit(main())
