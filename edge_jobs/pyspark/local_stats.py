"""Count, mean speed and occupancy of each sensor in each window of event time; arguments and
results are those of `io.speck.jobs.LocalStats`."""

from speck_spark import ArgumentFaultError, SpeckJob
from speck_spark.windows import ARGUMENTS, clocked_windows

if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=ARGUMENTS)
    try:
        results = clocked_windows(job.read(), "local_stats", job.arguments)
    except ArgumentFaultError as error:
        raise SystemExit(str(error)) from error
    job.run(results)
