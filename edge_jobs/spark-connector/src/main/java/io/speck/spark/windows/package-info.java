/**
 * Statistics over windows of event time, with the clock of the traffic application's jobs: an
 * operator with state, which PySpark lacks.
 *
 * <p>Begin with {@link io.speck.spark.windows.ClockedWindows}, which programs in Python call. Clock,
 * judgement of records and JSON are those of {@code io.speck.jobs}; what uses Spark is in {@code
 * ClockedWindows}, {@code WindowFunction} and {@code Numbering} alone.
 */
package io.speck.spark.windows;
