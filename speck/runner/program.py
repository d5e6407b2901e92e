"""The life of one program: started, watched, started again after a crash, stopped."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from speck.runner import claims
from speck.runner.claims import Claim, Record
from speck.runner.cleaning import clean_up
from speck.runner.exits import Exit, read_exit
from speck.runner.files import read_foreign
from speck.runner.groups import Group
from speck.runner.lease import acquire_lease, is_held
from speck.runner.logs import drop, read_tail, rotate
from speck.runner.members import Members
from speck.runner.owners import OWN
from speck.runner.processes import ProgramSession, read_boot, read_process
from speck.runner.reports import Report, parse_report
from speck.runner.settings import Settings
from speck.runner.starting import (
    Start,
    find_missing,
    give_up,
    let_go,
    open_log,
    renew_credentials,
    write_request,
)
from speck.runner.state_folder import StateFolder
from speck.runner.triggers import (
    Triggers,
    close_trigger,
    fail_open,
    fail_trigger,
    list_open,
    open_trigger,
)

Failure = tuple[int, str, str]
_FAILURES_KEPT = 3
_STEADY_S = 60.0
"""A program that has run for so long has recovered: the next crash is a first one."""
_LOOK_S = 1.0
_SHIM_S = 1.0
"""A shim whose lease is free ends within it."""
_RENEW_S = 30.0


class Program:
    """One claim, and what the runner does about it."""

    def __init__(self, folder: Path, claim: Claim, record: Record, settings: Settings) -> None:
        self.claim, self.record, self.folder = claim, record, folder
        self.report = Report()
        self.members = Members(folder / "lease")
        self.state_folder = StateFolder(folder / "state", settings.renew_s)
        self._settings, self._stop_s = settings, claim.find_stop_s(settings)
        self._shim: subprocess.Popen[bytes] | None = None
        self._due = self._began = self._asked_at = self._ended = 0.0
        self._looked = self._renewed = float("-inf")
        self._backoff_s = settings.retry_first_s
        self._log_at = 0
        self._is_late = False
        self.is_clean = False
        """Nothing is left of it but what is kept: it has ended."""
        self._requested = self._reported = 0

    def join(self, groups: Path | None) -> None:
        """Go on with a program after a start of the runner: it lives, or is about to be started
        again."""
        if groups is not None:
            self.members.use_group(Group(groups / self.claim.label))
        with suppress(OSError, ValueError):
            self._requested = int((self.folder / "request").read_text())
        self._began = self._asked_at = self._ended = time.monotonic()
        if self.over:
            return
        if not self.alive and self.record.starts:
            self.record = replace(self.record, state="restarting")
        elif self.record.wanted == "stop":
            self.members.ask_to_end(self.record.session)

    @property
    def alive(self) -> bool:
        return is_held(self.folder / "lease")

    @property
    def over(self) -> bool:
        return self.record.over

    @property
    def holds_slots(self) -> bool:
        return not self.over and self.record.session is not None

    # -- orders

    def cancel(self) -> None:
        """Raises OSError if this cannot be recorded; it has no effect then. So do all orders."""
        if not self.over:
            self._change(wanted="cancel")

    def stop(self, trigger: str) -> None:
        """Ask the program to end; it saves its state."""
        if not self._may_save(trigger):
            return
        opened = open_trigger(self.record.triggers, trigger)
        # first: a runner that dies now must know why the program ends
        self._change(wanted="stop", trigger=trigger, state="stopping", triggers=opened)
        self._asked_at = time.monotonic()
        self.members.ask_to_end(self.record.session)

    def save(self, trigger: str) -> None:
        """Ask the program for a checkpoint."""
        if not self._may_save(trigger):
            return
        if self.report.request is None:
            self._fail(trigger, "the program takes no checkpoints on request")
            return
        self._requested += 1
        write_request(self.folder, self._requested)
        opened = open_trigger(self.record.triggers, trigger, request=self._requested)
        self._change(triggers=opened)

    def _may_save(self, trigger: str) -> bool:
        """Whether a trigger is new and the program runs; of one that does not, it has failed."""
        if trigger in self.record.triggers:
            return False
        if self.record.state != "running":
            self._fail(trigger, f"it is {self.record.state}")
            return False
        return True

    def _fail(self, trigger: str, failure: str) -> None:
        self._change(triggers=fail_trigger(self.record.triggers, trigger, failure))

    def _close(self, trigger: str) -> Triggers:
        return close_trigger(self.record.triggers, trigger, self.state_folder.location)

    # -- the life

    def tick(self, free: int) -> None:
        """Do what is due, with so many slots free. Raises OSError."""
        if self._shim is not None:
            self._shim.poll()  # or it would stay as a zombie
        if self.over:
            self._clean()
        elif self.alive:
            self._watch()
        elif self.record.session is not None:
            self._bury()
        elif self.record.wanted == "cancel":
            self._end("canceled")
        elif time.monotonic() >= self._due and self.claim.width <= free:
            self._start()

    def _watch(self) -> None:
        now, run = time.monotonic(), self._read_exit()
        if run.status is None:
            self._ended = now
        has_lingered = now - self._ended > self._settings.stop_s
        if self.record.wanted == "cancel" or run.status or has_lingered:
            # of one that has ended, what it has left running
            self.members.kill(self.record.session)
            return
        self._read_report()
        is_ready = self.report.ready
        if is_ready is None:
            # a session of Spark may take minutes to start, so that silence says nothing
            is_ready = not self.claim.has_spark and now - self._began > self._settings.quiet_s
        if is_ready and self.record.state in ("starting", "restarting"):
            self._change(state="running", has_run=True)
        if now - self._began > _STEADY_S:
            self._backoff_s = self._settings.retry_first_s
        self._answer_saves()
        if self.record.wanted == "stop" and now - self._asked_at > self._stop_s:
            self._is_late = True
            self.members.kill(self.record.session)
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._look()

    def _read_report(self) -> None:
        file = self.folder / OWN / "report.json"
        with suppress(OSError):
            changed = file.lstat().st_mtime_ns
            if changed != self._reported:
                self._reported = changed
                report = parse_report(read_foreign(file), self.record.starts)
                self.report = report or self.report

    def _answer_saves(self) -> None:
        for trigger in list_open(self.record.triggers):
            request = self.record.triggers[trigger].get("request")
            if request is not None and (self.report.request or 0) >= request:
                self._change(triggers=self._close(trigger))

    def _look(self) -> None:
        """See to memory, the log and credentials."""
        memory_bytes = self.claim.find_memory_bytes(self._settings)
        self.members.measure(self.record.session, memory_bytes)
        if self.members.exceed(memory_bytes):
            self.members.kill(self.record.session)
        rotate(self.folder / "log")
        if time.monotonic() - self._renewed > _RENEW_S:
            self._renewed = time.monotonic()
            renew_credentials(self.folder, self.claim, self._settings)

    # -- its end

    def _bury(self) -> None:
        """It has ended: see how, and what follows."""
        session = self.record.session
        self.members.kill(session)  # what it may have left running
        if self._shim is not None:
            with suppress(subprocess.TimeoutExpired):  # or it would stay as a zombie
                self._shim.wait(_SHIM_S)
        self.members.end_run()
        run, wanted, trigger = self._read_exit(), self.record.wanted, self.record.trigger
        has_shut_down = run.with_machine or session is None or session.boot != read_boot()
        if wanted == "cancel":
            self._end("canceled")
        elif run.status == 0 and wanted == "stop":
            claims.raise_checkpoint(self.state_folder.path)
            self._end("finished", saved=True, triggers=self._close(trigger))
        elif run.status == 0 and not has_shut_down:
            self._end("finished")
        elif wanted == "stop":
            reason = self._explain(run)
            why = f"{reason} while it was being stopped"
            failed = fail_trigger(self.record.triggers, trigger, why)
            self._end("failed", triggers=failed, failures=self._list_failures(reason))
        elif has_shut_down:
            self._begin_again(0.0)
        elif self.record.has_run:
            self._begin_again(self._backoff_s, self._list_failures(self._explain(run)))
            self._backoff_s = min(self._settings.retry_most_s, 2 * self._backoff_s)
        else:
            self._end("failed", failures=self._list_failures(self._explain(run)))

    def _begin_again(self, after_s: float, failures: list[Failure] | None = None) -> None:
        known = self.record.failures if failures is None else failures
        self._change(session=None, state="restarting", failures=known)
        self._due = time.monotonic() + after_s

    def _read_exit(self) -> Exit:
        return read_exit(self.folder, self.record.starts)

    def _explain(self, run: Exit) -> str:
        if self.members.lacked_memory:
            most = self.claim.find_memory_mb(self._settings)
            return f"it used more than {most} MB of memory; give it more with memory_mb"
        if self._is_late:
            return f"it did not end within {self._stop_s:g} s of SIGTERM"
        return run.explain()

    def _list_failures(self, reason: str) -> list[Failure]:
        """The last ones, with one more."""
        trace = read_tail(self.folder / "log", self._log_at) if self.record.session else ""
        failures = [*self.record.failures, (claims.now_ms(), reason, trace)]
        return failures[-_FAILURES_KEPT:]

    def _end(self, state: str, *, triggers: Triggers | None = None, **fields: Any) -> None:
        triggers = self.record.triggers if triggers is None else triggers
        closed = fail_open(triggers, f"it is {state}")
        self._change(session=None, state=state, ended_ms=claims.now_ms(), triggers=closed, **fields)
        self.state_folder.expire()
        self._clean()

    def _clean(self) -> None:
        """Raises OSError; it is tried again, also by the next runner, until it `is_clean`."""
        self.members.remove_group()
        self.is_clean = clean_up(self.folder, self._settings.uids)

    # -- its start

    def _start(self) -> None:
        missing = find_missing(self.folder, self._settings)
        if missing is not None:
            why = f"{missing} is gone; without it, it does not start"
            self._end("failed", failures=self._list_failures(why))
            return
        lease = acquire_lease(self.folder / "lease")
        if lease is None:
            return
        try:
            self._spawn(lease)
        finally:
            os.close(lease)

    def _spawn(self, lease: int) -> None:
        """Start the shim, record that, and only then let it start the program: a runner that dies
        in between, or cannot record it, leaves nothing that nobody knows of."""
        number = self.record.starts + 1
        with open_log(self.folder) as log:
            self._log_at = os.fstat(log.fileno()).st_size
            start = Start(self.folder, self.claim, self._settings, number)
            shim = start.spawn(lease, log)
        try:
            self.members.enter(shim.pid, self.claim.find_memory_bytes(self._settings))
            process = read_process(shim.pid)
            session = ProgramSession(shim.pid, read_boot(), process.began if process else 0)
            state = "restarting" if self.record.has_run else "starting"
            self._change(starts=number, session=session, state=state)
        except BaseException:
            give_up(shim)
            raise
        self._shim = shim
        self.report = Report()
        self._began = self._ended = self._looked = self._renewed = time.monotonic()
        let_go(shim)

    def _change(self, **fields: Any) -> None:
        """Store what has become of it, and only then go by it: what a full disk does not take is
        decided once more. Raises OSError."""
        changed = replace(self.record, **fields)
        _store(self.folder, changed)
        self.record = changed

    # -- what is reported of it

    def describe(self) -> dict[str, Any]:
        """For the status."""
        record = self.record
        number, at_ms = self.state_folder.find_checkpoint(is_over=record.over)
        about = {
            "label": self.claim.label,
            "name": self.claim.name,
            "engine": self.claim.engine,
            "state": record.state,
            "width": self.claim.width,
            "saved": record.saved,
            "step": number,
            "at_ms": at_ms,
            "location": self.state_folder.location,
            "failures": record.failures,
            "triggers": record.triggers,
        }
        if record.over:
            return {**about, "ended_ms": record.ended_ms}
        return {
            **about,
            "restarts": max(0, record.starts - 1),
            "uptime_ms": int((time.monotonic() - self._began) * 1000),
            "cpu_ms": self.members.usage.cpu_ms,
            "bytes": self.members.usage.bytes,
            "state_bytes": self.state_folder.bytes,
            "report": self.report.to_json(),
        }


def _store(folder: Path, record: Record) -> None:
    try:
        claims.store_record(folder, record)
    except OSError:
        if not drop(folder / "log"):  # which makes room
            raise
        claims.store_record(folder, record)
