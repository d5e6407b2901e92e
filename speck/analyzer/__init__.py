"""The analyzer: a PySpark application that turns the metrics dataset into an analysis.

It runs as a process of its own (`python -m speck.analyzer`); nothing here touches a job. Each
step is a function DataFrame -> DataFrame whose columns a `Contract` fixes, in Spark's own
expressions only, so that a cluster's workers do not need speck. Begin with `run`.
"""
