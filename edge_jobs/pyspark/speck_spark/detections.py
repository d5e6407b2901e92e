"""Reads the records of the traffic application; a twin of the Java DetectionReader."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_FIELDS = (
    "stream string, time_ms bigint, end boolean, id bigint, sensor string, vehicle string,"
    " type string, speed_mps double, length_m double"
)
_GOOD = """
    d.stream <> '' and d.time_ms between 0 and 9007199254740992 and (coalesce(d.end, false) or (
        d.id >= 1 and d.sensor <> '' and d.vehicle <> '' and d.type <> ''
        and d.speed_mps > 0 and d.speed_mps <= 70 and d.length_m > 0 and d.length_m <= 30
    ))
"""


def parse_detections(records: DataFrame) -> DataFrame:
    """Add to records (`value`, bytes) their fields `d`, and `is_good`: whether they are a
    detection, or an end mark. What is no JSON object, or nothing that a sensor can have meant, is
    not."""
    fields = f.from_json(f.col("value").cast("string"), _FIELDS)
    parsed = records.select("*", fields.alias("d"))
    return parsed.select("*", f.expr(f"coalesce({_GOOD}, false)").alias("is_good"))


def read_detections(records: DataFrame) -> DataFrame:
    """From records (`value`, bytes) to rows of detections and end marks: `value` as it was, and its
    fields `d`. All else is left out."""
    return parse_detections(records).where("is_good").select("value", "d")
