/**
 * The jobs of the traffic application, and jobs for experiments. They use {@code io.speck.mqtt} and
 * Flink. Classes with public fields are state: their names and those of their fields must stay.
 *
 * <p>Jobs in PySpark share what they compute with these: {@link io.speck.jobs.EventTime}, {@link
 * io.speck.jobs.Windows}, {@link io.speck.jobs.DetectionReader}, {@link io.speck.jobs.Results} and
 * the state use no Flink, but for its copy of Jackson.
 *
 * <p>Begin with {@link io.speck.jobs.Clean}, the simplest job, then {@link
 * io.speck.jobs.LocalStats}. The README of the edge jobs lists all of them and their records.
 */
package io.speck.jobs;
