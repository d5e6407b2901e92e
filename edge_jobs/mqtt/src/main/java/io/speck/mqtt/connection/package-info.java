/**
 * Links over MQTT brokers: one client of one link, kept connected; what it receives, what it sends
 * and what became of that.
 *
 * <p>It uses {@code io.speck.link.transport} and {@code protocol}, HiveMQ's client and Netty. What it
 * needs of the client's internal classes is in {@link io.speck.mqtt.connection.HiveMqInternals} and
 * nowhere else.
 *
 * <p>Begin with {@link io.speck.mqtt.connection.MqttTransport} and {@link
 * io.speck.mqtt.connection.Supervisor}, then {@link io.speck.mqtt.connection.MqttConnection} and its
 * two protocols; {@link io.speck.mqtt.connection.Topics} are those beside the data.
 */
package io.speck.mqtt.connection;
