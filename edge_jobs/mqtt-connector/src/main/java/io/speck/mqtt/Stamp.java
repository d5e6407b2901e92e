package io.speck.mqtt;

/**
 * What every message of our sinks carries in the MQTT 5 user property {@value #PROPERTY}: {@code
 * <producer>/<epoch>/<number>}. Numbers start at 1 in each epoch of a producer.
 */
final class Stamp {
    static final String PROPERTY = "speck";

    private static final char COUNT = '+';

    private Stamp() {}

    /** {@code speck-<short>-<job>-<hash>} names the producer {@code <short>-<job>}. */
    static String producerOf(String clientId) {
        String name = clientId.startsWith("speck-") ? clientId.substring(6) : clientId;
        int hash = name.lastIndexOf('-');
        return hash > 0 ? name.substring(0, hash) : name;
    }

    /** Everything but the number, slash included. */
    static String prefix(String producer, long epoch) {
        return producer + '/' + epoch + '/';
    }

    /** What {@link #withCount} adds to a stamp. */
    static int countBytes(int count) {
        return 1 + PacketSize.digitsOf(count);
    }

    /** The stamp of a message with several records: that of the first, and how many they are. */
    static String withCount(String stamp, int count) {
        return stamp + COUNT + count;
    }

    /**
     * Of a message with several records.
     *
     * @param series everything before the number, slash included
     */
    record Many(String series, long first, int count) {}

    /** Null when it is no stamp of such a message. */
    static Many many(String stamp) {
        int slash = stamp == null ? -1 : stamp.lastIndexOf('/');
        int plus = stamp == null ? -1 : stamp.indexOf(COUNT, slash + 1);
        if (slash <= 0 || plus < 0) {
            return null;
        }
        long first = digits(stamp, slash + 1, plus);
        long count = digits(stamp, plus + 1, stamp.length());
        return first < 1 || count < 1 || count > Parcel.MOST_RECORDS
                ? null
                : new Many(stamp.substring(0, slash + 1), first, (int) count);
    }

    /**
     * Reads decimal digits.
     *
     * @return -1 when there is anything else, nothing, or too much for a long
     */
    static long digits(String text, int from, int to) {
        if (from >= to || to - from > 18) {
            return -1;
        }
        long value = 0;
        for (int i = from; i < to; i++) {
            int digit = text.charAt(i) - '0';
            if (digit < 0 || digit > 9) {
                return -1;
            }
            value = value * 10 + digit;
        }
        return value;
    }
}
