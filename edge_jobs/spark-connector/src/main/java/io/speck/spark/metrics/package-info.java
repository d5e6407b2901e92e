/** The counts of a query's links, which its program reads. It uses the core's metrics alone. */
package io.speck.spark.metrics;
