"""Apache Flink 1.20 and 2.x over its REST API; entry point `flink` of `speck.engines`."""
