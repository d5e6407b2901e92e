/**
 * Connections to MQTT brokers: one client of one link, kept connected; what it receives, what it
 * sends and what became of that.
 *
 * <p>It uses {@code protocol}, HiveMQ's client and Netty; no Flink, and neither {@code source} nor
 * {@code sink}. What it needs of the client's internal classes is in {@link
 * io.speck.mqtt.connection.HiveMqInternals} and nowhere else.
 *
 * <p>Begin with {@link io.speck.mqtt.connection.Supervisor}, which sources and sinks use, then
 * {@link io.speck.mqtt.connection.MqttConnection} and its two protocols.
 */
package io.speck.mqtt.connection;
