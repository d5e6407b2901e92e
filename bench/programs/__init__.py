"""Small jobs beside the benchmarks, for the engines that are not Flink: programs of the Python
client (`speck_link`), packed into an archive by `bench.engine_jobs`, and programs in PySpark
(`spark/`), each a file of its own."""
