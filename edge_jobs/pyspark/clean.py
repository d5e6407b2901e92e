"""Drops malformed and impossible detections; passes everything else on unchanged, end marks too."""

from speck_spark import SpeckJob
from speck_spark.detections import read_detections

if __name__ == "__main__":
    job = SpeckJob.from_arguments()
    job.run(read_detections(job.read()).select("value"))
