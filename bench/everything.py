"""All experiments, one after another: `make bench`, or `make bench QUICK=1` for a trial of all.

Each runs as a process of its own, in the order of docs/results.md; one that fails hides no other.
At the end a table on stdout says how long each took and how it ended; the exit status is 0 only
when none failed. One that needs root is not run without. What an experiment says goes to
bench/raw/<name>.log (in a trial <name>-quick.log), whose end is shown when it fails.

    python -m bench.everything [NAME ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.common import RAW, is_quick, say
from bench.page.section import Section
from bench.results_page import sections

NOT_RUN = "not run (needs root)"
MISSING = "there is no such program"
TOO_LONG = "took too long"
GRACE_S = 60.0
"""For taking down its fog, once it is told to end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one experiment ended: `status` of its process, or `why` it has none."""

    name: str
    seconds: float
    status: int | None
    why: str = ""

    @property
    def failed(self) -> bool:
        return self.status != 0 and self.why != NOT_RUN


def limit_s() -> float:
    """None should take longer."""
    return 240.0 if is_quick() else 2700.0


QUICK_S = 600.0
"""A trial of all should take no longer."""


def run_all(
    chosen: Sequence[Section], run: Callable[[str], Outcome], *, root: bool
) -> list[Outcome]:
    """Run those that can be, with `run(name)`."""
    outcomes = []
    for section in chosen:
        if section.root and not root:
            outcomes.append(Outcome(section.name, 0.0, None, NOT_RUN))
            continue
        say(f"=== {section.name}: {section.question}")
        outcomes.append(run(section.name))
        last = outcomes[-1]
        say(f"=== {section.name}: {ended(last)} after {last.seconds:.0f} s")
    return outcomes


def ended(outcome: Outcome) -> str:
    """In words."""
    return outcome.why or ("ok" if outcome.status == 0 else f"failed (status {outcome.status})")


def table(outcomes: Sequence[Outcome]) -> str:
    """One line each, and how long all took."""
    lines = [f"{it.name:16} {it.seconds:7.0f} s  {ended(it)}" for it in outcomes]
    total, failed = sum(it.seconds for it in outcomes), sum(it.failed for it in outcomes)
    left = sum(it.why == NOT_RUN for it in outcomes)
    last = f"{'all':16} {total:7.0f} s  {failed} of {len(lines)} failed"
    last += f", {left} not run: they need root on Linux" if left else ""
    last += f"; a trial should take {QUICK_S:.0f} s at most" if slow(outcomes) else ""
    return "\n".join([*lines, last])


def slow(outcomes: Sequence[Outcome]) -> bool:
    """Whether a trial took longer than trials should."""
    return is_quick() and sum(it.seconds for it in outcomes) > QUICK_S


def run(name: str) -> Outcome:
    """One experiment in a process of its own, talking to stderr and to its log."""
    if importlib.util.find_spec(f"bench.{name}") is None:
        return Outcome(name, 0.0, None, MISSING)
    RAW.mkdir(exist_ok=True)
    began = time.monotonic()
    log = RAW / (f"{name}-quick.log" if is_quick() else f"{name}.log")
    with log.open("wb") as file:
        status = _watched([sys.executable, "-m", f"bench.{name}"], file, limit_s())
    if status != 0:
        say(_end_of(log))
    why = TOO_LONG if status is None else ""
    return Outcome(name, time.monotonic() - began, status, why)


def _watched(command: Sequence[str], log: IO[bytes], limit: float) -> int | None:
    """The status of a process; None: it was ended at the limit."""
    with subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        start_new_session=True,  # it is told once to end, by us
    ) as process:
        try:
            return int(process.wait(limit))
        except subprocess.TimeoutExpired:
            _end(process)
            return None
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """So that it takes down what it has started, if it does so in time."""
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
    known = {section.name: section for section in sections()}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"cannot run {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    for each in (signal.SIGTERM, signal.SIGINT):  # so that what runs is ended well, and heeds it
        signal.signal(each, signal.default_int_handler)
    outcomes = run_all([known[name] for name in names], run, root=os.geteuid() == 0)
    print(table(outcomes))
    if not is_quick():
        say("`make results` shows them in docs/results.md")
    return 1 if slow(outcomes) or any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
