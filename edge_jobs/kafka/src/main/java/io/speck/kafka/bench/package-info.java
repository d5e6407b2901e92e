/**
 * A program that measures links over Kafka from outside, run by {@code bench/kafka_relay.py}: it is
 * in the connector's jar so that it uses the same client library.
 *
 * <p>Begin with {@link io.speck.kafka.bench.Relay}.
 */
package io.speck.kafka.bench;
