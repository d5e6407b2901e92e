/**
 * Programs that measure the connector from outside, run by {@code bench/load.py}: they are in its
 * jar so that they use the same client library. {@code Load} uses nothing but Java, {@code Relay}
 * {@code connection}.
 *
 * <p>Begin with {@link io.speck.mqtt.bench.Load}.
 */
package io.speck.mqtt.bench;
