"""The life of one program: started, watched, started again after a crash, stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speck.runner import claims
from speck.runner.claims import Claim, Record
from speck.runner.files import measure_folder, read_foreign
from speck.runner.groups import Group
from speck.runner.lease import acquire_lease, is_held
from speck.runner.logs import drop, read_tail, rotate
from speck.runner.owners import OWN, find_owner, list_users, make_run, take_back
from speck.runner.processes import (
    Process,
    ProgramSession,
    find_holders,
    find_mains,
    find_members,
    list_sessions,
    read_boot,
    read_process,
    send,
)
from speck.runner.reports import Report, parse_report
from speck.runner.settings import Settings
from speck.runner.starting import (
    CREDENTIALS,
    Start,
    give_up,
    let_go,
    open_log,
    renew_credentials,
    write_request,
)

Triggers = dict[str, dict[str, Any]]
Failure = tuple[int, str, str]
_TRIGGERS_KEPT = 20
_FAILURES_KEPT = 3
_STEADY_S = 60.0
"""A program that has run for so long has recovered: the next crash is a first one."""
_LOOK_S = 1.0
_RENEW_S = 30.0
_SIZE_TURNS = 5
"""The size of a state is measured at each so many readings of its number: it takes longer."""


@dataclass(slots=True)
class Usage:
    """What a program uses: CPU time since its start, and memory."""

    cpu_ms: float | None = None
    bytes: int | None = None


class Program:
    """One claim, and what the runner does about it."""

    def __init__(self, folder: Path, claim: Claim, record: Record, settings: Settings) -> None:
        self.claim, self.record, self.folder = claim, record, folder
        self.report, self.usage = Report(), Usage()
        self._settings = settings
        self._shim: subprocess.Popen[bytes] | None = None
        self._due = self._began = self._asked_at = 0.0
        self._looked = self._renewed = float("-inf")
        self._backoff_s = settings.retry_first_s
        self._log_at = 0
        self._group: Group | None = None
        self._kills = 0  # by the kernel, before the last start
        self._over_memory = self._is_late = False
        self._requested = self._reported = 0
        self._step: tuple[int, int] | None = None
        self._step_read = float("-inf")
        self._step_reads = 0
        self._state_bytes: int | None = None
        self._spent_ms = 0.0
        self.total_cpu_ms = 0.0
        """CPU time of all its runs that this runner has seen."""

    def join(self, groups: Path | None) -> None:
        """Go on with a program after a start of the runner: it lives, or is about to be started
        again."""
        if groups is not None:
            self._group = Group(groups / self.claim.label)
        with suppress(OSError, ValueError):
            self._requested = int((self.folder / "request").read_text())
        self._began = self._asked_at = time.monotonic()
        if self.over:
            return
        if not self.alive and self.record.starts:
            self.record = replace(self.record, state="restarting")
        elif self.record.wanted == "stop":
            send(self._find_mains(), signal.SIGTERM)

    @property
    def alive(self) -> bool:
        return is_held(self.folder / "lease")

    @property
    def over(self) -> bool:
        return self.record.over

    @property
    def holds_slots(self) -> bool:
        return not self.over and self.record.session is not None

    @property
    def state_folder(self) -> Path:
        return self.folder / "state"

    # -- orders

    def cancel(self) -> None:
        """Raises OSError if this cannot be recorded; it has no effect then. So do all orders."""
        if not self.over:
            self._change(wanted="cancel")

    def stop(self, trigger: str) -> None:
        """Ask the program to end; it saves its state."""
        if trigger in self.record.triggers:
            return
        if self.record.state != "running":
            self._change(triggers=self._close(trigger, failure=f"it is {self.record.state}"))
            return
        triggers = self._with_trigger(trigger, {"done": False, "location": None, "failure": None})
        # first: a runner that dies now must know why the program ends
        self._change(wanted="stop", trigger=trigger, state="stopping", triggers=triggers)
        self._asked_at = time.monotonic()
        send(self._find_mains(), signal.SIGTERM)

    def save(self, trigger: str) -> None:
        """Ask the program for a checkpoint."""
        if trigger in self.record.triggers:
            return
        if self.record.state != "running":
            self._change(triggers=self._close(trigger, failure=f"it is {self.record.state}"))
        elif self.report.request is None:
            failure = "the program takes no checkpoints on request"
            self._change(triggers=self._close(trigger, failure=failure))
        else:
            self._requested += 1
            write_request(self.folder, self._requested)
            entry = {"done": False, "location": None, "failure": None}
            waiting = self._with_trigger(trigger, {**entry, "request": self._requested})
            self._change(triggers=waiting)

    def _close(self, *triggers: str, failure: str | None = None) -> Triggers:
        """The triggers, with these done or failed."""
        location = self.location if failure is None else None
        entry = {"done": True, "location": location, "failure": failure}
        closed = self.record.triggers
        for trigger in triggers:
            closed = self._with_trigger(trigger, entry, closed)
        return closed

    def _with_trigger(
        self, trigger: str, entry: dict[str, Any], among: Triggers | None = None
    ) -> Triggers:
        known = self.record.triggers if among is None else among
        others = {name: each for name, each in known.items() if name != trigger}
        return {**dict(list(others.items())[-_TRIGGERS_KEPT:]), trigger: entry}

    @property
    def location(self) -> str:
        return f"file://{self.state_folder}"

    # -- the life

    def tick(self, free: int) -> None:
        """Do what is due, with so many slots free. Raises OSError."""
        if self._shim is not None:
            self._shim.poll()  # or it would stay as a zombie
        if self.over:
            return
        if self.alive:
            self._watch()
        elif self.record.session is not None:
            self._bury()
        elif self.record.wanted == "cancel":
            self._end("canceled")
        elif time.monotonic() >= self._due and self.claim.width <= free:
            self._start()

    def _watch(self) -> None:
        now = time.monotonic()
        if self.record.wanted == "cancel" or self._read_exit()[0]:
            self._kill()  # of one that has failed, what it has left running
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
        if self.record.wanted == "stop" and now - self._asked_at > self._settings.stop_s:
            self._is_late = True
            self._kill()
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
        waiting = [t for t, entry in self.record.triggers.items() if not entry["done"]]
        for trigger in waiting:
            request = self.record.triggers[trigger].get("request")
            if request is not None and (self.report.request or 0) >= request:
                self._change(triggers=self._close(trigger))

    def _look(self) -> None:
        """See to memory, the log and credentials."""
        members = self.find_members()
        cpu_ms = sum(each.cpu_ms for each in members)
        if self._group is not None and (counted_ms := self._group.cpu_ms()) is not None:
            cpu_ms = counted_ms  # of earlier runs, too
        # what a process has used is gone with it if its parent had not waited for it
        cpu_ms = max(cpu_ms, self.usage.cpu_ms or 0.0)
        self.usage = Usage(cpu_ms, sum(each.bytes for each in members))
        self.total_cpu_ms = max(self.total_cpu_ms, self._spent_ms + cpu_ms)
        most = self._memory_bytes
        limited = self._group is not None and self._group.limits_memory
        if most is not None and not limited and (self.usage.bytes or 0) > most:
            self._over_memory = True
            self._kill()
        rotate(self.folder / "log")
        if time.monotonic() - self._renewed > _RENEW_S:
            self._renewed = time.monotonic()
            renew_credentials(self.folder, self.claim, self._settings)

    @property
    def _memory_bytes(self) -> int | None:
        memory_mb = self.claim.find_memory_mb(self._settings)
        return None if memory_mb is None else memory_mb << 20

    # -- its end

    def _bury(self) -> None:
        """It has ended: see how, and what follows."""
        self._kill()  # what it may have left running
        exit_status, from_outside = self._read_exit()
        wanted, trigger = self.record.wanted, self.record.trigger
        if self._group is None or self._group.cpu_ms() is None:
            self._spent_ms += self.usage.cpu_ms or 0.0
        session, self.usage = self.record.session, Usage()
        has_shut_down = from_outside or session is None or session.boot != read_boot()
        if wanted == "cancel":
            self._end("canceled")
        elif exit_status == 0 and wanted == "stop":
            claims.raise_checkpoint(self.state_folder)
            self._end("finished", saved=True, triggers=self._close(trigger))
        elif exit_status == 0 and not has_shut_down:
            self._end("finished")
        elif wanted == "stop":
            reason = self._explain(exit_status)
            closed = self._close(trigger, failure=f"{reason} while it was being stopped")
            self._end("failed", triggers=closed, failures=self._list_failures(reason))
        elif has_shut_down:
            self._begin_again(0.0)
        elif self.record.has_run:
            self._begin_again(self._backoff_s, self._list_failures(self._explain(exit_status)))
            self._backoff_s = min(self._settings.retry_most_s, 2 * self._backoff_s)
        else:
            self._end("failed", failures=self._list_failures(self._explain(exit_status)))

    def _begin_again(self, after_s: float, failures: list[Failure] | None = None) -> None:
        known = self.record.failures if failures is None else failures
        self._change(session=None, state="restarting", failures=known)
        self._due = time.monotonic() + after_s

    def _read_exit(self) -> tuple[int | None, bool]:
        """The exit status, and whether the machine was shut down; None: it did not get to one."""
        text = read_foreign(self.folder / OWN / f"exit.{self.record.starts}") or b""
        status, *outside = text.split() or [b""]
        return (int(status) if status.isdigit() else None), bool(outside)

    def _explain(self, exit_status: int | None) -> str:
        most = self.claim.find_memory_mb(self._settings)
        kills = self._group.count_kills() if self._group is not None else 0
        if self._over_memory or kills > self._kills:
            return f"it used more than {most} MB of memory; give it more with memory_mb"
        if self._is_late:
            return f"it did not end within {self._settings.stop_s:g} s of SIGTERM"
        if exit_status is None:
            return "it was killed"
        if exit_status > 128:
            with suppress(ValueError):
                return f"it was ended by {signal.Signals(exit_status - 128).name}"
        return f"it ended with status {exit_status}"

    def _list_failures(self, reason: str) -> list[Failure]:
        """The last ones, with one more."""
        trace = read_tail(self.folder / "log", self._log_at) if self.record.session else ""
        failures = [*self.record.failures, (claims.now_ms(), reason, trace)]
        return failures[-_FAILURES_KEPT:]

    def _end(self, state: str, *, triggers: Triggers | None = None, **fields: Any) -> None:
        triggers = self.record.triggers if triggers is None else triggers
        failure = {"done": True, "location": None, "failure": f"it is {state}"}
        closed = {name: each if each["done"] else failure for name, each in triggers.items()}
        self._change(session=None, state=state, ended_ms=claims.now_ms(), triggers=closed, **fields)
        self._step_read = float("-inf")
        if self._group is not None:
            self._group.remove()
        shutil.rmtree(self.folder / CREDENTIALS, ignore_errors=True)
        claims.drop_program(self.folder)
        take_back(self.folder)

    def _kill(self) -> None:
        if self._group is not None:
            self._group.kill()
        send(self.find_members(), signal.SIGKILL)

    def find_members(self) -> list[Process]:
        """Its processes; those that hold its lease, if it has left its session."""
        in_group = self._group.members() if self._group is not None else []
        session = self.record.session
        in_session = find_members(session) if session is not None else []
        members = list({each.pid: each for each in (*in_group, *in_session)}.values())
        return members or (find_holders(self.folder / "lease") if self.alive else [])

    def _find_mains(self) -> list[Process]:
        session = self.record.session
        if session is None:
            return []
        return find_mains(find_members(session, list_sessions()), session.id)

    # -- its start

    def _start(self) -> None:
        missing = self._find_missing()
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

    def _find_missing(self) -> str | None:
        if not self.state_folder.is_dir():
            return "its state"
        if self._settings.uids is None and not list_users(self.folder):
            make_run(self.folder, (os.geteuid(), os.getegid()))  # programs can delete it then
        return None if find_owner(self.folder) is not None else f"its folder {OWN}"

    def _spawn(self, lease: int) -> None:
        """Start the shim, record that, and only then let it start the program: a runner that dies
        in between, or cannot record it, leaves nothing that nobody knows of."""
        number = self.record.starts + 1
        with open_log(self.folder) as log:
            self._log_at = os.fstat(log.fileno()).st_size
            start = Start(self.folder, self.claim, self._settings, number)
            shim = start.spawn(lease, log)
        try:
            if self._group is not None:
                self._group.make(self._memory_bytes)
                self._group.enter(shim.pid)
                self._kills = self._group.count_kills()
            process = read_process(shim.pid)
            session = ProgramSession(shim.pid, read_boot(), process.began if process else 0)
            state = "restarting" if self.record.has_run else "starting"
            self._change(starts=number, session=session, state=state)
        except BaseException:
            give_up(shim)
            raise
        self._shim = shim
        self.report, self._over_memory = Report(), False
        self._began = self._looked = self._renewed = time.monotonic()
        let_go(shim)

    def _change(self, **fields: Any) -> None:
        """Store what has become of it, and only then go by it: what a full disk does not take is
        decided once more. Raises OSError."""
        changed = replace(self.record, **fields)
        try:
            claims.store_record(self.folder, changed)
        except OSError:
            if not drop(self.folder / "log"):
                raise
            claims.store_record(self.folder, changed)
        self.record = changed

    # -- what is reported of it

    def describe(self) -> dict[str, Any]:
        """For the status."""
        record, now = self.record, time.monotonic()
        is_old = not record.over and now - self._step_read >= self._settings.renew_s
        if is_old or self._step_read == float("-inf"):
            self._step, self._step_read = claims.read_checkpoint(self.state_folder), now
            if self._step_reads % _SIZE_TURNS == 0:
                self._state_bytes = measure_folder(self.state_folder)
            self._step_reads += 1
        number, at_ms = self._step or (None, 0)
        about = {
            "label": self.claim.label,
            "name": self.claim.name,
            "engine": self.claim.engine,
            "state": record.state,
            "width": self.claim.width,
            "saved": record.saved,
            "step": number,
            "at_ms": at_ms,
            "location": self.location,
            "failures": record.failures,
            "triggers": record.triggers,
        }
        if record.over:
            return {**about, "ended_ms": record.ended_ms}
        return {
            **about,
            "restarts": max(0, record.starts - 1),
            "uptime_ms": int((time.monotonic() - self._began) * 1000),
            "cpu_ms": self.usage.cpu_ms,
            "bytes": self.usage.bytes,
            "state_bytes": self._state_bytes,
            "report": self.report.to_json(),
        }
