/**
 * The reading end of a link: takes messages, drops repeats, and acknowledges each message when a
 * checkpoint that covers it is complete.
 *
 * <p>It uses {@code protocol}, {@code transport} and {@code metrics}; not {@code sink}.
 *
 * <p>Begin with {@link io.speck.link.source.LinkReader}, which an engine drives: it polls a
 * connection, {@link io.speck.link.source.RecordIntake} makes records of the messages, {@link
 * io.speck.link.source.PendingCheckpoints} knows what each checkpoint covers, and {@link
 * io.speck.link.source.TakenAnnouncer} announces it. The state is {@link
 * io.speck.link.protocol.TakenNumbers}.
 */
package io.speck.link.source;
