package io.speck.link.transport;

import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.Until;

/**
 * Which part of a log a reader reads; a broker that keeps none has no use for it.
 *
 * @param handOver positions up to which an earlier reader has taken it
 * @param until positions up to which it is to be read
 * @param readBefore whether the reader's state comes from this link: should the broker have lost its
 *     place, what it has not taken may lie anywhere in the log
 */
public record ReadingRange(HandOver handOver, Until until, boolean readBefore) {
    public static final ReadingRange ALL = new ReadingRange(HandOver.NONE, Until.EVER, false);
}
