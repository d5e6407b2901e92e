"""Archives: what jobs have stored for later, as Parquet files by event day and site.

`<table>/day=YYYY-MM-DD/site=<site>/*.parquet` below one folder, which a URI names. A job writes a
file for each batch (`edge_jobs/pyspark/speck_spark/archive.py`); `files.py` lists those that count,
and `compaction.py` joins small ones. It uses the storage of the metrics dataset and knows nothing
of what the tables hold. Begin with `files.py`.
"""
