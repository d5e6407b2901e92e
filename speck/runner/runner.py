"""The runner's loop: it takes orders, sees to its programs, and writes its status.

Orders and status lie in the folder that the agent shares (`speck.agent.programs`). An order is
answered after the status shows its effect; each answer and status carries a `turn`, by which a
status from before an order is told from a later one.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from speck.agent.programs import FOLDER
from speck.errors import PermanentError
from speck.runner.claims import FOLDER as PROGRAMS
from speck.runner.claims import (
    PROCESS,
    Claim,
    TwiceError,
    list_claims,
    make_claim,
    now_ms,
    read_claim,
    strip,
)
from speck.runner.cores import count_cores
from speck.runner.files import read_own, write_json
from speck.runner.groups import find_groups, limits_memory
from speck.runner.lease import acquire_lease
from speck.runner.owners import list_users
from speck.runner.program import Failure, Program
from speck.runner.settings import Settings
from speck.runner.spark import check_cluster, find_spark

_TURN_S = 0.05
_ENDED_SHOWN = 50
_ENDED_SHOWN_S = 3600.0
_CLEAR_S = 60.0
_MOST_SHOWN = 700_000
"""Of the programs in the status, in bytes: the agent takes 1 MiB with all the rest."""
_LOGS_SHOWN = 8
"""Of so many programs that failed last the status holds the end of the log, of others a line."""
_LONGEST_LINE = 200
_BYTES_PER_S = 10_000
"""Of a status in which only figures have changed: a site may have a thin uplink."""
_LONGEST_PAUSE_S = 5.0
_HOLD_S = 1.0
"""After a failure of the disk, before the next try."""
Order = Mapping[str, Any]


class Runner:
    """The programs of one site; `run` returns after `stop`, and the programs go on."""

    def __init__(self, settings: Settings) -> None:
        """Raises PermanentError when another runner has the folder, or a setting is unusable."""
        self._settings = settings
        root = settings.state_folder.resolve()
        self._root, self._engine = root / PROGRAMS, root / FOLDER
        self._turn = max(now_ms(), _find_last_turn(self._engine) + 1)
        self._stopping = threading.Event()
        self._making = ThreadPoolExecutor(1, "claims")
        self._made: dict[str, Future[Program | None]] = {}
        self._shown: tuple[float, Any] = (0.0, None)  # when figures are due again, and the rest
        self._held: dict[str, float] = {}
        self._cores = count_cores()
        self._cleared = float("-inf")
        self._cleared_cpu_ms: dict[str, float] = {}
        self._spark = find_spark(settings.python) if settings.spark_jar is not None else None
        if settings.spark_master is not None:
            check_cluster(settings.spark_master, settings.spark_secret_file)
        try:
            for folder in (self._root, *(self._engine / n for n in ("orders", "answers"))):
                folder.mkdir(parents=True, exist_ok=True)
            if settings.uids is not None:  # programs reach their own folders, and no others
                root.chmod(stat.S_IMODE(root.stat().st_mode) | 0o001)
                self._root.chmod(0o771)
                self._engine.chmod(stat.S_IMODE(self._engine.stat().st_mode) & ~0o007)
            self._lock = acquire_lease(self._engine / "runner.lock")
            self._groups = find_groups(settings.groups)
            self._has_limits = self._groups is not None and limits_memory(self._groups)
            self._ids = self._choose_ids()
        except OSError as error:
            raise PermanentError(f"cannot use the state folder {root}: {error}") from error
        if self._lock is None:
            raise PermanentError(f"cannot start: another runner supervises programs in {root}")
        self.programs: dict[str, Program] = {}
        """By their ids; of the loop's thread."""
        for label, (claim, record) in list_claims(self._root).items():
            self._add(Program(self._root / label, claim, record, settings))
        self._try("write the status", self._write_status)

    def run(self) -> None:
        """Supervise until `stop` is called."""
        try:
            while not self._stopping.wait(_TURN_S):
                self._turn_once()
        finally:
            self._making.shutdown(cancel_futures=True)
            if self._lock is not None:
                os.close(self._lock)

    def stop(self) -> None:
        """Return from `run` soon; the programs are left as they are."""
        self._stopping.set()

    def _turn_once(self) -> None:
        self._try("take orders", self._take_orders)
        for program in list(self.programs.values()):
            if not program.is_clean:
                what = f"see to {program.claim.name} ({program.claim.label})"
                self._try(what, partial(program.tick, self._free))
        self._try("write the status", self._write_status)
        if time.monotonic() - self._cleared > _CLEAR_S:
            self._cleared = time.monotonic()
            self._try("delete what is left of old programs", self._clear)

    def _clear(self) -> None:
        for program in self._list_ended()[self._count_shown() :]:
            strip(program.folder)
            kind, spent = program.claim.engine, self._cleared_cpu_ms
            spent[kind] = spent.get(kind, 0.0) + program.members.total_cpu_ms
            del self.programs[program.claim.label]

    def _list_ended(self) -> list[Program]:
        """The newest first."""
        ended = (each for each in self.programs.values() if each.over)
        return sorted(ended, key=lambda each: -each.record.ended_ms)

    def _count_shown(self) -> int:
        """How many of those that have ended are shown: all of the last hour, and some more."""
        recent_ms = now_ms() - _ENDED_SHOWN_S * 1000
        recent = sum(p.over and p.record.ended_ms > recent_ms for p in self.programs.values())
        return max(_ENDED_SHOWN, recent)

    def _try(self, what: str, act: Callable[[], None]) -> None:
        """Do something, unless it failed a moment ago: a disk that is full, or fails, or what is
        wrong with one program, keeps the runner from nothing else, and is tried again."""
        if time.monotonic() < self._held.get(what, 0.0):
            return
        try:
            act()
        except Exception as error:
            if what not in self._held:
                why = error if isinstance(error, OSError) else repr(error)
                print(f"cannot {what}: {why}; tries again", file=sys.stderr, flush=True)
            self._held[what] = time.monotonic() + _HOLD_S
        else:
            self._held.pop(what, None)

    def _take_orders(self) -> None:
        for name in [name for name, made in self._made.items() if made.done()]:
            self._answer(self._engine / "orders" / name, self._finish(self._made.pop(name)))
        for _, file, order in sorted(self._list_orders(), key=lambda each: each[:2]):
            self._take(file, order)

    def _add(self, program: Program) -> None:
        program.join(self._groups)
        self.programs[program.claim.label] = program

    @property
    def _free(self) -> int:
        held = sum(each.claim.width for each in self.programs.values() if each.holds_slots)
        return self._settings.slots - held

    def _choose_ids(self) -> list[int]:
        uids = self._settings.uids
        if uids is None:
            return []
        if os.geteuid() != 0:
            raise PermanentError(
                "cannot give programs users of their own: start the runner as root"
            )
        return list(range(uids[0], uids[1] + 1))

    # -- orders

    def _list_orders(self) -> Iterator[tuple[float, Path, Order]]:
        """Those that may still be taken and have no answer."""
        for file in (self._engine / "orders").iterdir():
            is_open = file.suffix != ".new" and file.name not in self._made
            if is_open and not (self._engine / "answers" / file.name).exists():
                with suppress(OSError, ValueError, LookupError, TypeError):
                    content = json.loads(file.read_bytes())
                    if content["until"] > time.time():
                        yield float(content["until"]), file, content["order"]

    def _take(self, file: Path, order: Order) -> None:
        """Carry out an order. Claims are made by a thread: to copy a state may take long."""
        try:
            do = order["do"]
            if do in ("start", "burn"):
                make = self._start if do == "start" else self._burn
                self._made[file.name] = self._making.submit(make, order)
                return
            answer = self._act(do, order)
        except (LookupError, TypeError, ValueError, OSError) as error:
            answer = {"refused": f"the runner cannot do this: {error!r}"}
        self._answer(file, answer)

    def _act(self, do: str, order: Order) -> Mapping[str, Any]:
        if do == "look":
            return {}
        if do == "discard":
            (self._engine / "artifacts" / Path(order["artifact"]).name).unlink(missing_ok=True)
            return {}
        program = self._find(order["label"])
        if program is None:
            return {"refused": f"{order['label']} is not known"}
        match do:
            case "cancel":
                program.cancel()
            case "stop":
                program.stop(order["trigger"])
            case "save":
                program.save(order["trigger"])
            case _:
                return {"refused": f"this runner does not know how to {do!r}; update it"}
        return {}

    def _find(self, label: str) -> Program | None:
        return self.programs.get(label)

    def _start(self, order: Order) -> Program | None:
        claim = Claim(
            label=order["label"],
            name=order["name"],
            artifact=Path(order["artifact"]).name,
            kind=order["kind"],
            entry=order["entry"],
            args=tuple(order["args"]),
            width=int(order["width"]),
            base=order["state"],
            at_ms=now_ms(),
            engine=order.get("engine", PROCESS),
            memory_mb=order.get("memory_mb"),
        )
        if claim.has_spark and self._settings.spark_jar is None:
            raise PermanentError("this runner has no Spark; start it with --spark-jar")
        artifact = self._engine / "artifacts" / claim.artifact
        return self._claim(claim, artifact)

    def _burn(self, order: Order) -> Program | None:
        engine = order.get("engine", PROCESS)
        burnt = Claim(order["label"], "burnt", at_ms=now_ms(), burnt=True, engine=engine)
        return self._claim(burnt, None)

    def _claim(self, claim: Claim, artifact: Path | None) -> Program | None:
        folder = make_claim(self._root, claim, artifact, self._find_owner())
        made = read_claim(folder)
        return Program(folder, *made, self._settings) if made is not None else None

    def _find_owner(self) -> tuple[int, int]:
        """A user that no program has whose files are still there."""
        if not self._ids:
            return os.geteuid(), os.getegid()
        taken = {user for folder in self._root.iterdir() for user in list_users(folder)}
        free = next((each for each in self._ids if each not in taken), None)
        if free is None:
            raise PermanentError(
                f"no user is free for it: all {len(self._ids)} of --uids are taken"
            )
        return free, free

    def _finish(self, made: Future[Program | None]) -> Mapping[str, Any]:
        try:
            program = made.result()
        except TwiceError as error:
            return {"refused": str(error), "twice": True}
        except Exception as error:  # whatever an artifact or a state may hold
            is_known = isinstance(error, (PermanentError, OSError))
            return {"refused": str(error) if is_known else repr(error)}
        if program is not None:
            self._add(program)
        return {}

    def _answer(self, file: Path, answer: Mapping[str, Any]) -> None:
        self._turn += 1
        self._write_status()  # first: who has the answer sees its effect
        write_json(self._engine / "answers" / file.name, {**answer, "turn": self._turn})

    # -- status

    def _write_status(self) -> None:
        """The figures alone are no reason to write it."""
        shown = [each for each in self.programs.values() if not each.over]
        shown += self._list_ended()[: self._count_shown()]
        programs = [each.describe() for each in shown]
        status = {
            "version": f"process 1 (Python {platform.python_version()})",
            "turn": self._turn,
            "slots": self._settings.slots,
            "free": max(0, self._free),
            "folder": str(self._root),
            "spark": self._spark,
            "cores": self._cores,
            "isolated": bool(self._ids) or None,
            "memory_by": "group" if self._has_limits else "watch",
            "artifacts": self._list_artifacts(),
        }
        figures = ("report", "uptime_ms", "cpu_ms", "bytes", "state_bytes", "step", "at_ms")
        plain = [{k: v for k, v in each.items() if k not in figures} for each in programs]
        connected = [each.get("report", {}).get("connected") for each in programs]
        due, before = self._shown
        if (status, plain, connected) != before or time.monotonic() > due:
            runs = {each["label"]: each for each in _shorten(programs)}
            content = {**status, "cpu_ms": self._sum_cpu(), "runs": runs}
            pause_s = min(_LONGEST_PAUSE_S, len(json.dumps(content)) / _BYTES_PER_S)
            due = time.monotonic() + max(pause_s, self._settings.renew_s)
            self._shown = due, (status, plain, connected)
            write_json(self._engine / "status.json", content, durable=False)

    def _sum_cpu(self) -> dict[str, float]:
        """CPU time of all programs by the kind of their engine, since this runner began."""
        sums = dict(self._cleared_cpu_ms)
        for each in self.programs.values():
            sums[each.claim.engine] = sums.get(each.claim.engine, 0.0) + each.members.total_cpu_ms
        return sums

    def _list_artifacts(self) -> dict[str, int]:
        artifacts = {}
        with suppress(FileNotFoundError):
            for file in (self._engine / "artifacts").iterdir():
                if file.suffix != ".part":
                    with suppress(FileNotFoundError):
                        artifacts[file.name] = int(file.stat().st_mtime * 1000)
        return artifacts


def _find_last_turn(engine: Path) -> int:
    """The last turn that an earlier runner has reported, 0 if there was none: whoever has seen it
    believes no lower one, and the machine's clock may have been set back since."""
    files = [engine / "status.json", *(engine / "answers").glob("*")]
    turns = [(read_own(file) or {}).get("turn") for file in files]
    return max((turn for turn in turns if isinstance(turn, int)), default=0)


def _shorten(programs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is shown of programs: the ends of few logs, and of none where these are too much for the
    agent."""
    by_time = sorted(each["failures"][-1][0] for each in programs if each["failures"])
    since = by_time[-_LOGS_SHOWN] if len(by_time) >= _LOGS_SHOWN else 0
    shown = [{**each, "failures": _cut_logs(each["failures"], since)} for each in programs]
    if len(json.dumps(shown)) <= _MOST_SHOWN:
        return shown
    bare = ([(at_ms, why, "") for at_ms, why, _ in each["failures"]] for each in programs)
    return [{**each, "failures": failures} for each, failures in zip(programs, bare, strict=True)]


def _cut_logs(failures: list[Failure], since_ms: int) -> list[Failure]:
    """Failures of a program with the last line of the log each; the last one with more of it if it
    was so lately."""
    lines = [(at_ms, why, log.rpartition("\n")[2][:_LONGEST_LINE]) for at_ms, why, log in failures]
    has_log = bool(failures) and failures[-1][0] >= since_ms
    return [*lines[:-1], failures[-1]] if has_log else lines
