/**
 * The Flink sink of a port. {@link io.speck.flink.sink.LinkSinkWriter} drives the core's writer,
 * and {@link io.speck.flink.sink.LinkCommitter} its publisher of committables.
 */
package io.speck.flink.sink;
