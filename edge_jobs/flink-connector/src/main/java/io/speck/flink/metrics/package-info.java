/** The core's metrics as Flink's, and the CPU time of a task. */
package io.speck.flink.metrics;
