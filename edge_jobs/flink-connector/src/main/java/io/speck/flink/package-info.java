/**
 * The shell of the link core for Flink: a FLIP-27 source and a Sink V2 that pass on what Flink
 * calls, and keep the core's state in Flink's checkpoints.
 *
 * <p>It uses Flink and {@code io.speck.link}, and no broker's module. Begin with {@link
 * io.speck.flink.source.LinkSource} and {@link io.speck.flink.sink.LinkSink}.
 */
package io.speck.flink;
