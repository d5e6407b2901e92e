/**
 * What jobs of Flink use: {@link io.speck.mqtt.SpeckJob} joins a job to its links, whatever their
 * brokers are, and {@link io.speck.mqtt.Parameters} reads its own arguments. The name is that of
 * the first broker: jobs are built against it.
 *
 * <p>All else below {@code io.speck} is not for jobs: {@code io.speck.flink} is the shell of {@code
 * io.speck.link}, the link core, for Flink, and each broker has a module of its own ({@code
 * io.speck.mqtt.connection}). A test keeps them from using each other but in one direction.
 *
 * <p>Begin with {@link io.speck.mqtt.SpeckJob}.
 */
package io.speck.mqtt;
