"""All experiments, one after another: `make bench`, or `make bench QUICK=1` for a trial of all.

Each runs as a process of its own, in the order of docs/results.md; one that fails hides no other.
A trial runs two at a time, since its figures prove nothing. At the end a table on stdout says how
long each took and how it ended; the exit status is 0 only when none failed. One that needs root is
not run without. What an experiment says goes to bench/raw/<name>.log (in a trial
<name>-quick.log), whose end is shown when it fails.

After an interruption the same command goes on: an experiment whose result was measured from this
code (the last commit that changed the product) is not run again, and most of the others continue
within (bench/experiment.py).

    python -m bench.everything [--again] [NAME ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.common import RAW, RESULTS, find_code, is_quick, say
from bench.page.section import Section
from bench.results_page import load_sections

NOT_RUN = "not run (needs root)"
MEASURED = "measured before from this code"
MISSING = "there is no such program"
TOO_LONG = "took too long"
GRACE_S = 60.0
"""For taking down its fog, once it is told to end."""
_OVER = threading.Event()
"""Whoever runs them all has had enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one experiment ended: `status` of its process, or `why` it has none."""

    name: str
    seconds: float
    status: int | None
    why: str = ""

    @property
    def failed(self) -> bool:
        return self.status != 0 and self.why not in (NOT_RUN, MEASURED)


LONG = {"rewire": 6.0, "engines": 4.0, "moves_spark": 2.0, "ramp": 1.5}
"""What needs more time than the others: how many times as much."""


def limit_s(name: str) -> float:
    """The experiment should take no longer: 240 s in a trial, else 2700 s, unless it is `LONG`."""
    return (240.0 if is_quick() else 2700.0) * LONG.get(name, 1.0)


QUICK_S = 600.0
"""A trial of all should take no longer."""


SERIES = frozenset({"rewire"})
"""Experiments that write a result after each of their series, and skip those that it holds."""


def is_measured(name: str, code: str) -> bool:
    """Whether there is a whole result that was measured from this code."""
    file = RESULTS / f"{name}.json"
    if name in SERIES or code.endswith("+") or not file.exists():
        return False
    result = json.loads(file.read_text())
    made = result.get("made", result) if isinstance(result, dict) else {}
    return bool(made.get("code") == code)


def run_all(
    sections: Sequence[Section],
    run: Callable[[str], Outcome],
    *,
    root: bool,
    at_once: int = 1,
    is_done: Callable[[str], bool] = lambda _: False,
) -> list[Outcome]:
    """Run those that can be and are not done, with `run(name)`, `at_once` at a time; begun in
    their order."""

    def one(section: Section) -> Outcome:
        if section.root and not root:
            return Outcome(section.name, 0.0, None, NOT_RUN)
        if is_done(section.name):
            return Outcome(section.name, 0.0, None, MEASURED)
        say(f"=== {section.name}: {section.question}")
        outcome = run(section.name)
        say(f"=== {section.name}: {describe_end(outcome)} after {outcome.seconds:.0f} s")
        return outcome

    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(one, sections))
        except BaseException:
            _OVER.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def describe_end(outcome: Outcome) -> str:
    """In words."""
    return outcome.why or ("ok" if outcome.status == 0 else f"failed (status {outcome.status})")


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """One line each, and how long all took."""
    lines = [f"{it.name:16} {it.seconds:7.0f} s  {describe_end(it)}" for it in outcomes]
    failed = sum(it.failed for it in outcomes)
    not_run = sum(it.why == NOT_RUN for it in outcomes)
    measured = sum(it.why == MEASURED for it in outcomes)
    last = f"{'all':16} {seconds:7.0f} s  {failed} of {len(lines)} failed"
    last += f", {not_run} not run: they need root on Linux" if not_run else ""
    last += f", {measured} measured before: --again repeats them" if measured else ""
    last += f"; a trial should take {QUICK_S:.0f} s at most" if slow(seconds) else ""
    return "\n".join([*lines, last])


def slow(seconds: float) -> bool:
    """Whether a trial took longer than trials should."""
    return is_quick() and seconds > QUICK_S


def run(name: str) -> Outcome:
    """One experiment in a process of its own, talking to stderr and to its log."""
    if importlib.util.find_spec(f"bench.{name}") is None:
        return Outcome(name, 0.0, None, MISSING)
    RAW.mkdir(exist_ok=True)
    began = time.monotonic()
    log = RAW / (f"{name}-quick.log" if is_quick() else f"{name}.log")
    with log.open("wb") as file:
        status = _run_watched([sys.executable, "-m", f"bench.{name}"], file, limit_s(name))
    if status != 0:
        say(_end_of(log))
    why = TOO_LONG if status is None else ""
    return Outcome(name, time.monotonic() - began, status, why)


def _run_watched(command: Sequence[str], log: IO[bytes], limit: float) -> int | None:
    """The status of a process; None: it was ended, at the limit or with all of them."""
    with subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        start_new_session=True,  # it is told once to end, by us
    ) as process:
        try:
            until = time.monotonic() + limit
            while process.poll() is None and time.monotonic() < until and not _OVER.wait(0.1):
                pass
        finally:
            ended = process.poll()
            if ended is None:
                _end(process)
        return ended


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the experiment so that it removes its fog, if it does so in time."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        say("it had to be killed: see with `pgrep -f speck-` what it has left running")


def _end_of(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    by_name = {section.name: section for section in load_sections()}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(by_name))
    parser.add_argument(
        "--again", action="store_true", help="repeat also what was measured from this code"
    )
    options = parser.parse_args()
    names = options.names or list(by_name)
    if unknown := set(names) - set(by_name):
        parser.error(f"cannot run {', '.join(sorted(unknown))}: there are {', '.join(by_name)}")
    for each in (signal.SIGTERM, signal.SIGINT):  # so that what runs is ended well, and heeds it
        signal.signal(each, signal.default_int_handler)
    began = time.monotonic()
    sections, root = [by_name[name] for name in names], os.geteuid() == 0
    code, everything = find_code(), options.again or is_quick()
    outcomes = run_all(
        sections,
        run,
        root=root,
        at_once=2 if is_quick() else 1,
        is_done=lambda name: not everything and is_measured(name, code),
    )
    seconds = time.monotonic() - began
    print(table(outcomes, seconds))
    if not is_quick():
        say("`make results` shows them in docs/results.md")
    return 1 if slow(seconds) or any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
