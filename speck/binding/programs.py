"""Programs of speck's own that an engine has to run; they come from its binder.

That which uses up an id (`StreamEngine.fence`) and that which runs a sink alone (`resend`) are the
binder's secret. The calibration is a job like others, and so described here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CalibrationProgram:
    """The job that measures how fast a site is: where it is found (a `job_path`) and its entry.

    It reports the counters `calibrate.done`, `lightUnits`, `lightCpuNanos`, `lightNanos`,
    `fullUnits` and `fullNanos`, as `speck.service.calibration` reads them.
    """

    job_path: str
    entry: str
