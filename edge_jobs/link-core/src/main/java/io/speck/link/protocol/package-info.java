/**
 * What goes over the wire between speck's sinks, readers and control plane: how records lie in a
 * message, the stamps that number them, and the texts in which readers and sinks report.
 *
 * <p>Pure: it uses Java and the zstd codec, and no network, no Flink and none of the packages
 * beside it. The Python twin of the formats is {@code binders.mqtt.batches}; the README of the edge
 * jobs lists topics and content types.
 *
 * <p>Begin with {@link io.speck.link.protocol.Message} and {@link io.speck.link.protocol.Stamp};
 * {@link io.speck.link.protocol.TakenNumbers} is how a reader recognises repeats and losses.
 */
package io.speck.link.protocol;
