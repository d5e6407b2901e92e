"""Passes everything on."""

from speck_spark import SpeckJob

if __name__ == "__main__":
    job = SpeckJob.from_arguments()
    job.run(job.read())
