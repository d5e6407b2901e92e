"""What the calibration job needs and counts, over sites in memory that run nothing."""

from __future__ import annotations

import zipfile

from binders.flink.artifacts import CALIBRATION
from speck.model.site import Calibration, CalibrationDetail
from speck.service import Service
from speck.service.calibration import PREFIX
from speck.service.jobs import JobMetrics
from speck.store.tables import Batch

DONE = {
    "calibrate.lightUnits": 100.0,
    "calibrate.lightCpuNanos": 50e6,
    "calibrate.lightNanos": 58e6,
    "calibrate.fullUnits": 4000.0,
    "calibrate.fullCpuNanos": 2e9,
    "calibrate.fullNanos": 16e9,
    "calibrate.done": 2.0,
    "v.accumulateBusyTimeMs": 7.0,
}
"""The counters of a run of two tasks, summed: 0.5 ms a unit, 500 units a second for 8 s."""


def make_job_jar(service: Service) -> str:
    """A jar that holds the job's class, as far as an engine in memory is concerned."""
    with zipfile.ZipFile(service.config.jar_folders[0] / CALIBRATION.job_path, "w") as archive:
        archive.writestr("io/speck/jobs/Calibrate.class", b"1")
    return CALIBRATION.job_path


def count_units(service: Service, unit_ms: dict[str, float]) -> None:
    """Let the job at each site count as if a unit took so many ms of CPU time there."""

    def metrics(name: str) -> JobMetrics:
        tasks = service.jobs.get(name).description.parallelism
        counted = {
            **DONE,
            "calibrate.lightCpuNanos": unit_ms[name.removeprefix(PREFIX)] * 100e6,
            "calibrate.fullNanos": tasks * 8e9,
            "calibrate.done": tasks,
        }
        return JobMetrics(name, None, "", {}, counted)

    vars(service.jobs)["metrics"] = metrics
    service.calibrations.run_s = 0


def calibration(cores: float, pace: float | None) -> Calibration:
    """What a run has found."""
    detail = CalibrationDetail(wall_s=1.0, tasks=1, units=1, contended=False)
    return Calibration(cores, pace, 1.0, "2026-01-01T00:00:00Z", detail)


def put_calibration(service: Service, site: str, cores: float, pace: float | None) -> Batch:
    """Store it as if the site had been calibrated."""
    return service.records.sites.put_calibration(site, calibration(cores, pace))
