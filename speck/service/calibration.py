"""How fast sites are, measured by a calibration job that runs there alone.

The program that the engine's binder names is posted alone under a reserved name, measures itself,
and is removed whatever happens; one that a killed service left behind is removed at the next start.

The result is a `speck.model.site.Calibration`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from speck.binding import (
    ENGINES,
    CalibrationProgram,
    EngineCapability,
    artifact_kinds,
    calibration_program,
    kinds,
)
from speck.clock import Clock, rfc3339
from speck.errors import (
    ConflictError,
    EngineRefusedError,
    InvalidError,
    Problem,
    SpeckError,
    TransientError,
    at_site,
)
from speck.model.composition import Head, composition_of_one, job_posted_alone
from speck.model.engines import EngineAt
from speck.model.job import JobDescription, Upgrade
from speck.model.site import Calibration, CalibrationDetail, Tier
from speck.model.values import SPECK
from speck.service.jobs import Jobs
from speck.sites.connections import Connections
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch

PREFIX = "speck-calibration-"
_MOST_TASKS = 64
"""The most cores that a calibration can find."""
_LONGEST = 63
"""Characters of a name, see `speck.model.values.NAME_PATTERN`."""
_START_S = 120.0
_MEASURE_S = 120.0
_REMOVE_S = 60.0
_RUN_S = 16.0
"""How long the job measures. It is not polled before: an answer costs the engine CPU time, which
shows at a quarter of a core."""
_POLL_S = 0.5
_HELD_UP = 1.2
"""A unit that takes this many times its CPU time has waited for a core."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one run. `unit_s`: CPU seconds of one unit of work; `wall_s`: the same in wall
    time; `cores`: units per second at full load, times their cost."""

    unit_s: float
    wall_s: float
    cores: float
    tasks: int
    units: int


def read_result(metrics: Mapping[str, float], tasks: int) -> Reading | None:
    """The result by the counters of a run; None until all its tasks are done. Raises
    EngineRefusedError when the counters are too low for a figure."""

    def counter(name: str) -> float:
        return sum(v for key, v in metrics.items() if key.endswith(f"calibrate.{name}"))

    if counter("done") < tasks:
        return None
    units, cpu, wall = (counter(f"light{name}") for name in ("Units", "CpuNanos", "Nanos"))
    full, spent = counter("fullUnits"), counter("fullNanos")
    if min(units, cpu, full, spent) <= 0:
        raise EngineRefusedError(
            f"cannot tell the site's speed: {units:.0f} and {full:.0f} units of work were done;"
            " it is too slow, or too busy: free it and calibrate again"
        )
    unit_s = cpu / units / 1e9
    # each task's own time lies within the units that it did without a pause
    seconds = spent / tasks / 1e9
    return Reading(unit_s, wall / units / 1e9, full * unit_s / seconds, tasks, int(full))


class Calibrations:
    """Runs calibrations, one at a time, and keeps their results."""

    def __init__(
        self, records: Records, connections: Connections, jobs: Jobs, polls: SitePolls, clock: Clock
    ):
        self._records = records
        self._connections = connections
        self._jobs = jobs
        self._polls = polls
        self._clock = clock
        self._busy = threading.Lock()
        self._over = threading.Event()
        self._sweeper: threading.Thread | None = None
        self.run_s = _RUN_S
        """How long the job measures; a test whose job measures nothing sets it to 0."""

    def sweep(self) -> None:
        """Remove, in the background, calibration jobs that a killed service left behind."""
        if self._own_jobs():
            self._sweeper = threading.Thread(target=self._sweep, name="calibration sweep")
            self._sweeper.start()

    def close(self) -> None:
        """Abort a running calibration; its job is removed now or at the next start."""
        self._over.set()
        if self._sweeper is not None:
            self._sweeper.join(_REMOVE_S)
        if self._busy.acquire(timeout=_REMOVE_S):
            self._busy.release()

    def reference(self) -> str | None:
        """The site whose cores have speed 1: the first cloud site by name, else the first."""
        sites = sorted(
            self._records.sites.all().values(), key=lambda s: (s.tier != Tier.CLOUD, s.name)
        )
        return sites[0].name if sites else None

    def run(
        self,
        site: str,
        *,
        busy: bool = False,
        job_path: str | None = None,
        by: str | None = None,
        shows: Callable[[str], bool] = lambda job_name: True,
        shows_site: Callable[[str], bool] = lambda site: True,
    ) -> Calibration:
        """Measure `site` now (some 20 s) and keep the result; returns it. `by` asks for it;
        `shows` says which jobs may be named to them, `shows_site` which sites.

        Raises NotFoundError; ConflictError while another calibration runs, when jobs run at the
        site (unless `busy`), when no slot is free, or when the reference is not calibrated yet;
        whatever hinders the job.
        """
        program = self._find_program(site, job_path)
        if not self._busy.acquire(blocking=False):
            raise ConflictError(f"cannot calibrate {site}: another calibration runs; wait for it")
        try:
            self._refuse_unreferenced(site, shows_site)
            if not busy:
                self._refuse_disturbing(site, shows)
            tasks = self._tasks(site)
            reading = self._measure(site, tasks, program, by)
            self._keep(site, reading, by)
        finally:
            self._busy.release()
        calibration = self.of(site)
        assert calibration is not None
        return calibration

    def of(self, site: str) -> Calibration | None:
        """How fast a site is; None when it was never calibrated."""
        return self._records.sites.calibration(site)

    def _keep(self, site: str, reading: Reading, by: str | None) -> None:
        """Store a result. Core speeds are relative to the reference: when that is calibrated
        again, all of them change."""
        is_contended = reading.wall_s > _HELD_UP * reading.unit_s
        measured = Calibration(
            cores=round(reading.cores, 4),
            core_speed=None,
            unit_s=reading.unit_s,
            at=rfc3339(self._clock.now()),
            detail=CalibrationDetail(reading.wall_s, reading.tasks, reading.units, is_contended),
        )
        calibrations = {**dict(self._records.sites.calibrations()), site: measured}
        reference = calibrations.get(self.reference() or "")
        batch: Batch = {}
        for name, calibration in calibrations.items():
            core_speed = reference.unit_s / calibration.unit_s if reference else None
            speed = round(core_speed, 4) if core_speed else None
            relative = replace(calibration, core_speed=speed)
            batch |= self._records.sites.put_calibration(name, relative)
        message = f"{site} calibrated: {measured.cores:g} cores"
        event = self._records.events.make("site", message, site=site, by=by)
        self._records.write(batch, event)

    def _refuse_unreferenced(self, site: str, shows_site: Callable[[str], bool]) -> None:
        reference = self.reference()
        if reference is None or reference == site or self.of(reference) is not None:
            return
        if not shows_site(reference):
            raise ConflictError(
                f"cannot calibrate {site}: core speeds are relative to those of another site,"
                " which is not calibrated yet; ask an administrator"
            )
        raise ConflictError(
            f"cannot calibrate {site}: core speeds are relative to {reference}, which is not"
            f" calibrated yet; run speck site calibrate {reference} {site}"
        )

    def _refuse_disturbing(self, site: str, shows: Callable[[str], bool]) -> None:
        jobs = sorted(
            name if shows(name) else "a job of others"
            for (_, name), incarnation in self._records.incarnations.at_engine_of(site).items()
            if not incarnation.ended and not name.startswith(PREFIX)
        )
        if jobs:
            names = ", ".join(dict.fromkeys(jobs))
            raise ConflictError(
                f"cannot calibrate {site}: it would take CPU time from {names}, and they"
                " would distort the result; stop them first, or accept both (--busy)"
            )

    def _tasks(self, site: str) -> int:
        """How many tasks to run: one for each free slot, at most 64."""
        self._polls.engines.forget(site)
        poll = self._polls.engines.poll([site]).get(site)
        if poll is None or poll.answer is None or poll.answer.silent:
            raise TransientError(f"cannot calibrate {site}: its engine does not answer")
        slots = poll.answer.slots
        if slots is not None and slots.free < 1:
            raise ConflictError(
                f"cannot calibrate {site}: none of its {slots.total} slots is free; stop a job"
            )
        return min(_MOST_TASKS, slots.free) if slots is not None else 1

    def _find_program(self, site: str, job_path: str | None) -> CalibrationProgram:
        """What measures the site's engine, in the file `job_path` if one is given."""
        kind = self._connections.site(site).spe.kind
        program = calibration_program(kind)
        engine = self._connections.engine_of(EngineAt(site, min(artifact_kinds(kind))))
        lacks = EngineCapability.METRICS not in engine.capabilities
        if program is None or lacks:
            why = "has no capability `metrics`" if lacks else "brings no program for it"
            raise ConflictError(f"cannot calibrate {site}: its engine, of kind {kind}, {why}")
        return replace(program, job_path=job_path) if job_path is not None else program

    def _measure(
        self, site: str, tasks: int, program: CalibrationProgram, by: str | None
    ) -> Reading:
        name = job_name(site)
        self._remove(name, by)
        job = JobDescription(
            job_name=name,
            site=site,
            source_topic=f"speck-calibration/{site}",
            sink_topic=f"speck-calibration/{site}/none",
            entry_class=program.entry,
            job_path=program.job_path,
            parallelism=tasks,
            upgrade=Upgrade.STATELESS,
            pinned=True,
        )
        try:
            if self._jobs.post(job, _START_S, by=by).under_way is not None:
                raise TransientError(
                    f"cannot calibrate {site}: its job has not started in {_START_S:.0f} s"
                )
            return self._await(site, name, tasks)
        except InvalidError as error:
            raise _without_program(error, site, program) from error
        finally:
            with suppress(SpeckError):  # then the next calibration or start removes it
                self._remove(name, by)

    def _await(self, site: str, name: str, tasks: int) -> Reading:
        until = self._clock.monotonic() + _MEASURE_S
        self._over.wait(self.run_s)
        while self._clock.monotonic() < until and not self._over.is_set():
            self._clock.wait(_POLL_S)
            try:
                counters = self._jobs.metrics(name).metrics
            except TransientError:
                continue
            try:
                reading = read_result(counters, tasks)
            except EngineRefusedError as error:
                raise at_site(error, site) from error
            if reading is not None:
                return reading
        if self._over.is_set():
            why = "the service stops"
        else:
            why = f"no result in {_MEASURE_S:.0f} s, job {name} is {self._jobs.get(name).state}"
        raise TransientError(f"cannot calibrate {site}: {why}; calibrate it again")

    def _own_jobs(self) -> list[str]:
        """Its own jobs; a job of somebody else may have such a name, too."""
        return [
            name
            for head in self._records.compositions.heads(starting=composition_of_one(PREFIX))
            if (name := job_posted_alone(head.name)) and self._is_own(head)
        ]

    def _is_own(self, head: Head) -> bool:
        revision = self._records.compositions.revision(head.name, head.revision)
        if revision is None:
            return False
        (job,) = revision.description.jobs
        programs = (calibration_program(kind) for kind in kinds(ENGINES))
        return any(each is not None and job.entry_class == each.entry for each in programs)

    def _remove(self, name: str, by: str | None) -> None:
        if name in self._own_jobs():
            self._jobs.delete(name, _REMOVE_S, by=by)

    def _sweep(self) -> None:
        with self._busy:
            until = self._clock.monotonic() + _START_S + _REMOVE_S
            for name in self._own_jobs():
                while not self._is_swept(name) and self._clock.monotonic() < until:
                    if self._over.wait(_POLL_S):
                        return

    def _is_swept(self, name: str) -> bool:
        """Remove one; false while its start, which goes on where the service was killed, is in the
        way. One that cannot be removed at all is left to the next calibration or start."""
        try:
            self._remove(name, SPECK)
        except ConflictError:
            return False
        except SpeckError:
            pass
        return True


def job_name(site: str) -> str:
    """The name of the job that calibrates a site: no longer than a name may be."""
    if len(PREFIX) + len(site) <= _LONGEST:
        return f"{PREFIX}{site}"
    digest = hashlib.sha256(site.encode()).hexdigest()[:8]
    return f"{PREFIX}{site[: _LONGEST - len(PREFIX) - 9]}-{digest}"


def _without_program(error: InvalidError, site: str, program: CalibrationProgram) -> InvalidError:
    """The error with a hint where the program is found, when that is what is missing."""
    paths = {problem.path.rpartition(".")[2] for problem in error.problems}
    if not paths & {"job_path", "entry_class"}:
        return error
    hint = "put the file that holds it into a folder of SPECK_JARS, or name it (--jar)"
    return InvalidError(
        f"cannot calibrate {site}: the service has no job {program.entry} in {program.job_path};"
        f" {hint}",
        [*error.problems, Problem("job_path", hint)],
    )
