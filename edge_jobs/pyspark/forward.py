"""Passes everything on unchanged: joins a site's streams to another broker."""

from speck_spark import SpeckJob

if __name__ == "__main__":
    job = SpeckJob.from_arguments()
    job.run(job.read())
