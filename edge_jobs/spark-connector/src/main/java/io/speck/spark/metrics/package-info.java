/**
 * The counts of queries' links, which their programs read. It uses the core's metrics alone.
 */
package io.speck.spark.metrics;
