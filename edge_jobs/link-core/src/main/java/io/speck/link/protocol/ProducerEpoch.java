package io.speck.link.protocol;

import java.nio.charset.StandardCharsets;

/**
 * One epoch of one producer, in which numbers rise from 1.
 *
 * @param stampPrefix everything in the epoch's stamps before the number
 * @param maxStampBytes the most that a stamp of the epoch takes in a packet
 */
public record ProducerEpoch(
        String producer, long epoch, String stampPrefix, int maxStampBytes) {
    private static final int USER_PROPERTY = 1 + 2 + 2; // identifier, lengths of name and value
    private static final int LONG_DIGITS = 19;

    public static ProducerEpoch of(String producer, long epoch) {
        String prefix = Stamp.prefix(producer, epoch);
        int bytes = prefix.getBytes(StandardCharsets.UTF_8).length + LONG_DIGITS;
        return new ProducerEpoch(
                producer, epoch, prefix, USER_PROPERTY + Stamp.PROPERTY.length() + bytes);
    }

    /** Returns what the stamp of a number takes in a packet. */
    public int stampBytes(long number) {
        return maxStampBytes - LONG_DIGITS + Sizes.digitsOf(number);
    }
}
