/**
 * Metrics that sources and sinks have in common. It uses Flink's metrics and none of the packages
 * beside it.
 */
package io.speck.mqtt.metrics;
