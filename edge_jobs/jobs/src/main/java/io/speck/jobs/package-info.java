/**
 * The jobs of the traffic application, and jobs for experiments. They use {@code io.speck.mqtt} and
 * Flink. Classes with public fields are state: their names and those of their fields must stay.
 *
 * <p>Begin with {@link io.speck.jobs.Clean}, the simplest job, then {@link
 * io.speck.jobs.LocalStats}. The README of the edge jobs lists all of them and their records.
 */
package io.speck.jobs;
