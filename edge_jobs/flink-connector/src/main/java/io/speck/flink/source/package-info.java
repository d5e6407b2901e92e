/**
 * The Flink source of a link. {@link io.speck.flink.source.LinkSourceReader} drives the core's
 * reader; {@link io.speck.flink.source.LinkSplit} is the state.
 */
package io.speck.flink.source;
