"""Statistics over all sites for each window of event time: count, mean speed, counts of each site
and of each type of vehicle; arguments and results are those of `io.speck.jobs.Merge`."""

from speck_spark import ArgumentFaultError, SpeckJob
from speck_spark.windows import ARGUMENTS, clocked_windows

if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=ARGUMENTS)
    try:
        results = clocked_windows(job.read(), "merge", job.arguments)
    except ArgumentFaultError as error:
        raise SystemExit(str(error)) from error
    job.run(results)
