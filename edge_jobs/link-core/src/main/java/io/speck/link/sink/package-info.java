/**
 * The writing end of a link: publishes records as messages, at once or when a checkpoint is complete,
 * and publishes again what a broker may have forgotten.
 *
 * <p>It uses {@code protocol}, {@code transport} and {@code metrics}; not {@code source}.
 *
 * <p>Begin with {@link io.speck.link.sink.LinkWriters}, which says what runs in which delivery mode;
 * an engine drives the {@link io.speck.link.sink.LinkWriter} and the {@link
 * io.speck.link.sink.CommittablePublisher}. Both end in {@link io.speck.link.sink.Publisher}; its
 * parts are {@link io.speck.link.sink.SendQueue}, {@link io.speck.link.sink.OutcomeHandler}, {@link
 * io.speck.link.sink.RefusalRetry}, {@link io.speck.link.sink.PendingResend}, {@link
 * io.speck.link.sink.ResendWindow} and {@link io.speck.link.sink.LinkStatus}. Checkpoints keep
 * {@link io.speck.link.sink.Committable} and {@link io.speck.link.sink.SinkState}.
 */
package io.speck.link.sink;
