package io.speck.mqtt;

import java.nio.charset.StandardCharsets;

/**
 * The numbers of one epoch of one producer, which rise from 1.
 *
 * @param prefix of the stamps, before the number
 * @param stampBytes the most that a stamp takes in a packet
 */
record Series(String producer, long epoch, String prefix, int stampBytes) {
    private static final int USER_PROPERTY = 1 + 2 + 2; // type, lengths of name and value
    private static final int LONG_DIGITS = 19;

    /** What the stamp of a number takes in a packet. */
    int stampBytes(long number) {
        return stampBytes - LONG_DIGITS + PacketSize.digitsOf(number);
    }

    static Series of(String producer, long epoch) {
        String prefix = Stamp.prefix(producer, epoch);
        int bytes = prefix.getBytes(StandardCharsets.UTF_8).length + LONG_DIGITS;
        return new Series(
                producer, epoch, prefix, USER_PROPERTY + Stamp.PROPERTY.length() + bytes);
    }
}
