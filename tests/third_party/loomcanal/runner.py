"""The engine itself: at a site, beside its agent, which carries orders in and the status out."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loomcanal.canal import CANALS, Canal
from loomcanal.loom import EVERY_S
from speck.spec.job_contract import parse_taken

_FLAGS = (
    *("job-name", "source-broker", "source-topic", "sink-broker", "sink-topic", "client-id"),
    *("sink-client-id", "epoch", "taken", "until", "records"),
)


@dataclass
class Run:
    """One run. `made` is the id that the runner has made up, `label` what speck calls it."""

    made: str
    label: str
    name: str
    artifact: str
    args: list[str]
    width: int
    folder: str
    state: str = "starting"
    saved: bool = False
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[tuple[int, str]] = field(default_factory=list)
    at_ms: int = 0

    @property
    def steps(self) -> Path:
        return Path(self.folder) / "steps"

    @property
    def over(self) -> bool:
        return self.state in ("finished", "canceled", "failed")

    def numbers(self) -> list[int]:
        names = (file.name for file in self.steps.glob("*"))
        return sorted(int(name) for name in names if name.isdigit())

    def newest(self) -> tuple[int, dict[str, Any]]:
        numbers = self.numbers()
        if not numbers:
            return 0, {"place": None, "link": None, "number": 0, "epoch": None, "memory": 0}
        return numbers[-1], json.loads((self.steps / str(numbers[-1])).read_text())

    def report(self) -> dict[str, Any]:
        numbers = self.numbers()
        step = numbers[-1] if numbers else None
        about = {"location": f"file://{self.folder}", "step": step}
        return {**asdict(self), **about, "folder": None}


class DiedError(Exception):
    """The machine was switched off."""


class LoomRunner:
    """Runs until `stop`; a new one on the same folder goes on with the runs of the one before."""

    def __init__(self, folder: Path, slots: int = 8):
        self.folder = folder.resolve()
        self._engine = self.folder / "engine"
        self._slots = slots
        self._turn = int(time.time() * 1000)
        self._runs: dict[str, Run] = {}
        self._over = threading.Event()
        self._told: tuple[float, Any] = (0.0, None)
        self.dies_at = ""
        """The point at which the machine is switched off: `copy` and `claim` within a start,
        `step`, `publish` and `commit` behind these, `stop` before a stop is stored."""
        for name in ("orders", "answers", "artifacts"):
            (self._engine / name).mkdir(parents=True, exist_ok=True)
        for claim in sorted((self.folder / "runs").glob("*/claim.json")):
            run = Run(**json.loads(claim.read_text()))
            run.state = "restarting" if run.state == "running" else run.state
            self._runs[run.made] = run
        self._write_status()
        self._thread = threading.Thread(target=self._work, name="loom", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End at once, as when the machine is switched off: the runs are not asked."""
        self._over.set()
        self._thread.join()

    @property
    def dead(self) -> bool:
        return not self._thread.is_alive()

    def _pass(self, point: str) -> None:
        if self.dies_at == point:
            raise DiedError(point)

    def _work(self) -> None:
        with suppress(DiedError):
            self._run()

    def _run(self) -> None:
        while not self._over.wait(0.005):
            for until, file, order in sorted(self._list_orders(), key=lambda each: each[:2]):
                if until > time.time():
                    self._answer(file, order)
            for run in list(self._runs.values()):
                if not self._over.is_set():
                    self._go_on(run)
            self._write_status()

    # -- orders ---------------------------------------------------------------------------

    def _list_orders(self) -> Iterator[tuple[float, Path, dict[str, Any]]]:
        """Those without an answer, with the time until which they may be taken."""
        for file in (self._engine / "orders").glob("*"):
            if file.suffix != ".new" and not (self._engine / "answers" / file.name).exists():
                with suppress(FileNotFoundError):
                    content = json.loads(file.read_text())
                    yield content["until"], file, content["order"]

    def _answer(self, file: Path, order: dict[str, Any]) -> None:
        answer: dict[str, Any] = getattr(self, f"_do_{order.pop('do')}")(**order) or {}
        self._turn += 1
        self._write_status()  # before the answer: who has the answer sees its effect
        _write(self._engine / "answers" / file.name, {**answer, "turn": self._turn})

    def _find(self, label: str) -> Run | None:
        return next((run for run in self._runs.values() if run.label == label), None)

    def _do_look(self) -> None:
        """The status tells of what is there."""

    def _do_discard(self, artifact: str) -> None:
        (self._engine / "artifacts" / artifact).unlink(missing_ok=True)

    def _do_start(self, label: str, state: str | None, **about: Any) -> Mapping[str, Any] | None:
        if self._find(label) is not None:
            return {"refused": f"{label} has been started", "twice": True}
        base = Path((state or "").removeprefix("file://")) / "steps"
        if state is not None and not base.is_dir():
            return {"refused": f"no state is at {state}"}
        pattern = self._engine / "artifacts" / about["artifact"]
        if not pattern.exists():
            return {"refused": f"the artifact {about['artifact']} is not here"}
        run = self._make(label, **about)
        shutil.copy(pattern, Path(run.folder) / "pattern")
        if state is not None:  # a copy: the base stays as it is
            for file in sorted(base.glob("*")):
                shutil.copy(file, run.steps / file.name)
                self._pass("copy")
        self._pass("claim")
        self._claim(run)  # before, it is no state
        return None

    def _do_burn(self, label: str) -> Mapping[str, Any] | None:
        if self._find(label) is not None:
            return {"refused": f"{label} has been started", "twice": True}
        run = self._make(label, "burnt", "", [], 0)
        run.state = "failed"
        self._claim(run)
        return None

    def _do_cancel(self, label: str) -> None:
        run = self._find(label)
        if run is not None and not run.over:
            run.state = "canceled"
            self._claim(run)

    def _do_stop(self, label: str, trigger: str) -> Mapping[str, Any] | None:
        return self._save(label, trigger, ends=True)

    def _do_save(self, label: str, trigger: str) -> Mapping[str, Any] | None:
        return self._save(label, trigger, ends=False)

    def _do_step(self, label: str, trigger: str) -> Mapping[str, Any] | None:
        return self._save(label, trigger, ends=False)

    def _save(self, label: str, trigger: str, *, ends: bool) -> Mapping[str, Any] | None:
        """Each step is kept, so that the state is where it is."""
        run = self._find(label)
        if run is None:
            return {"refused": f"{label} is not known"}
        if trigger in run.triggers:
            return None
        location, failure = f"file://{run.folder}", None
        if run.state != "running":
            location, failure = None, f"it is {run.state}"
        elif not run.numbers():
            self._step(run)
        run.triggers[trigger] = {"done": True, "location": location, "failure": failure}
        if ends and failure is None:
            run.state, run.saved = "finished", True
            self._pass("stop")
        self._claim(run)
        return None

    def _make(self, label: str, name: str, artifact: str, args: list[str], width: int) -> Run:
        made = f"loom-{len(self._runs) + 1}"
        folder = self.folder / "runs" / label
        shutil.rmtree(folder, ignore_errors=True)  # of a start that was cut short
        (folder / "steps").mkdir(parents=True)
        self._runs[made] = Run(made, label, name, artifact, args, width, str(folder))
        return self._runs[made]

    def _claim(self, run: Run) -> None:
        _write(Path(run.folder) / "claim.json", asdict(run))

    # -- runs -----------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        held = (run.width for run in self._runs.values() if run.state == "running")
        return self._slots - sum(held)

    def _go_on(self, run: Run) -> None:
        if run.state in ("starting", "restarting") and run.width <= self._free:
            run.state = "running"
            self._publish(run.newest()[1])  # what was decided before, where it was to go
            self._claim(run)
        if run.state == "running":
            self._step(run)

    def _step(self, run: Run) -> None:
        """Read what has come, decide what follows from it, and only then tell others."""
        args = _parse(run.args)
        number, before = run.newest()
        source = _canal(args, "source")
        link = [args["source_broker"], args["source_topic"]]
        place = before["place"] if before["link"] == link else None
        entries = []
        if source is not None:
            if place is None:
                place = source.places.get((args["client_id"], args["source_topic"]), {})
                place = place | _later(place, _numbers(args["taken"]))
            entries = source.read(args["source_topic"], place)
            if until := _numbers(args["until"]):
                entries = [each for each in entries if each.number <= until.get(each.part, 0)]
        elif time.time() * 1000 - run.at_ms < EVERY_S * 1000:
            return
        if source is not None and not entries and number:
            return
        pattern = (Path(run.folder) / "pattern").read_text().split()[-1]
        memory, out, sent = before["memory"], [], before["number"]
        epoch = before["epoch"] or args["epoch"]
        for _, _, entry in entries:
            memory, sent = memory + 1, sent + 1
            text = entry.payload.upper() if pattern == "upper" else entry.payload + b":%d" % memory
            out.append([f"{args['sink_client_id']}/{epoch}/{sent}", text.decode()])
        step = {
            "place": None if place is None else place | {e.part: e.number for e in entries},
            "link": link,
            "number": sent,
            "epoch": epoch,
            "memory": memory,
            "out": out,
            "to": [args["sink_broker"], args["sink_topic"]],
        }
        _write(run.steps / str(number + 1), step)
        if entries:
            self._pass("step")
        run.at_ms = int(time.time() * 1000)
        self._publish(step)
        if source is not None:
            if entries:
                self._pass("commit")
            source.commit(args["client_id"], args["source_topic"], step["place"])
        for old in run.numbers()[:-2]:
            (run.steps / str(old)).unlink()
        if args["records"] is not None and number + 1 >= int(args["records"]):
            run.state = "finished"
            self._claim(run)

    def _publish(self, step: Mapping[str, Any]) -> None:
        """Append what a step has decided, but for what is there already."""
        if not step.get("out"):
            return
        address, topic = step["to"]
        canal = CANALS[address]
        last = canal.last_number(topic, step["out"][0][0].rpartition("/")[0])
        for stamp, text in step["out"]:
            if int(stamp.rpartition("/")[2]) > last:
                canal.append(topic, text.encode(), stamp)
                self._pass("publish")

    def _write_status(self) -> None:
        artifacts = (self._engine / "artifacts").glob("*")
        status = {
            "version": "loom 1",
            "turn": self._turn,
            "slots": self._slots,
            "free": self._free,
            "folder": str(self.folder),
            "runs": {run.made: run.report() for run in self._runs.values()},
            "artifacts": {
                file.name: int(file.stat().st_mtime * 1000)
                for file in artifacts
                if file.suffix != ".part"
            },
        }
        at, told = self._told
        if status != told or time.monotonic() - at > 1.0:
            self._told = time.monotonic(), status
            _write(self._engine / "status.json", status, durable=False)


def _parse(args: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for flag in _FLAGS:
        parser.add_argument(f"--{flag}")
    return vars(parser.parse_known_args(args)[0])


def _canal(args: Mapping[str, Any], end: str) -> Canal | None:
    return CANALS[args[f"{end}_broker"]] if args[f"{end}_broker"] else None


def _numbers(text: str | None) -> dict[str, int]:
    """A position in a log that speck hands over as text."""
    return {each.producer: each.upto for each in parse_taken(text or "")}


def _later(place: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {part: max(number, place.get(part, 0)) for part, number in other.items()}


def _write(file: Path, content: Any, *, durable: bool = True) -> None:
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("w") as out:
        json.dump(content, out)
        out.flush()
        if durable:
            os.fsync(out.fileno())
    fresh.rename(file)
