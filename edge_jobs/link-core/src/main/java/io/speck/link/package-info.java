/**
 * The link core: how records get from job to job, each once, over any broker and from any engine.
 *
 * <p>It knows stamps, taken numbers, committables and resend windows, and neither an engine nor a
 * broker. An engine's shell drives {@link io.speck.link.source.LinkReader}, {@link
 * io.speck.link.sink.LinkWriter} and {@link io.speck.link.sink.CommittablePublisher}; a broker's
 * module implements {@link io.speck.link.transport.Transport}.
 *
 * <p>Packages use each other in one direction: this one uses {@code source} and {@code sink}, these
 * use {@code transport} and {@code metrics}, and all of them {@code protocol}. A test keeps it so.
 *
 * <p>Begin with {@link io.speck.link.JobContract}, which reads the arguments of a job.
 */
package io.speck.link;
