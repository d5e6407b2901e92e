package io.speck.link.transport;

import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.Until;

/**
 * Which part of a log a reader reads; a broker that keeps none has no use for it.
 *
 * @param handOver positions up to which an earlier reader has taken it
 * @param until positions up to which it is to be read
 * @param position where the reader's state ends, if it comes from this link
 * @param readBefore whether it does: should the broker have lost the reader's place, what it has not
 *     taken may lie anywhere in the log
 */
public record ReadingRange(
        HandOver handOver, Until until, LogPosition position, boolean readBefore) {}
