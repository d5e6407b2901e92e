"""`speck batch traffic`: what the archive of the traffic application says afterwards.

`statistics.py` sums up the detections of an archive with PySpark, `results.py` makes results of
the sums, `comparison.py` holds the global statistics of `merge` against them, `run.py` joins all
that, and `command.py` shows it. Begin with `run.py`.
"""
