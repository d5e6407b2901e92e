/**
 * The Flink sink of a link. {@link io.speck.flink.sink.LinkSinkWriter} drives the core's writer, and
 * {@link io.speck.flink.sink.LinkCommitter} its publisher of committables.
 */
package io.speck.flink.sink;
