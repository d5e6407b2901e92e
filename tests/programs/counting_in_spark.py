"""A program in PySpark that counts rows, which Spark makes up; it uses no link."""

import os
from pathlib import Path

from speck_spark import SpeckJob

job = SpeckJob.from_arguments(own=["records"])
if "records" in job.arguments.values:  # a source that ends
    folder = Path(os.environ["SPECK_STATE_DIR"], "rows")
    folder.mkdir(exist_ok=True)
    (folder / "rows.txt").write_text("row\n" * int(job.arguments.get("records")))
    rows = job.spark.readStream.text(str(folder))
    trigger = {"availableNow": True}
else:
    rows = job.spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    trigger = {"processingTime": f"{job.interval_ms} milliseconds"}
counts = rows.groupBy().count()
writer = counts.writeStream.format("noop").outputMode("update").trigger(**trigger)
job.run_query(writer.option("checkpointLocation", job.checkpoint).start())
