"""The job contract for programs in PySpark: a link is the data source `speck`.

    from speck_spark import SpeckJob

    job = SpeckJob.from_arguments()
    records = job.read()                      # a column `value`, the record as bytes
    job.run(records.selectExpr("upper(string(value)) as value"))

It lies in the connector's jar, from which Python imports it at a site; it uses PySpark and the
standard library only. Begin with `job.py`.
"""

from speck_spark.arguments import ArgumentFaultError, Arguments
from speck_spark.job import SpeckJob

__all__ = ["ArgumentFaultError", "Arguments", "SpeckJob"]
