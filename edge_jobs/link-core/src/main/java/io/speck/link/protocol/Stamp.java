package io.speck.link.protocol;


/**
 * What every message of our sinks carries in the MQTT 5 user property {@value #PROPERTY}: {@code
 * <producer>/<epoch>/<number>}. Numbers start at 1 in each epoch of a producer.
 */
public final class Stamp {
    public static final String PROPERTY = "speck";

    private static final String CLIENT_ID_PREFIX = "speck-";
    private static final char COUNT = '+';
    private static final int MAX_LONG_DIGITS = 18; // no number of that many digits overflows

    private Stamp() {}

    /**
     * The client id {@code speck-<short>-<job>-<hash>} belongs to the producer {@code
     * <short>-<job>}.
     */
    public static String producerOf(String clientId) {
        String name =
                clientId.startsWith(CLIENT_ID_PREFIX)
                        ? clientId.substring(CLIENT_ID_PREFIX.length())
                        : clientId;
        int hash = name.lastIndexOf('-');
        return hash > 0 ? name.substring(0, hash) : name;
    }

    /** Returns everything before the number, slash included. */
    static String prefix(String producer, long epoch) {
        return producer + '/' + epoch + '/';
    }

    /** Returns how many bytes {@link #withCount} adds to a stamp. */
    static int countBytes(int count) {
        return 1 + Sizes.digitsOf(count);
    }

    /** The stamp of a batch: that of its first record, and how many records it has. */
    public static String withCount(String stamp, int count) {
        return stamp + COUNT + count;
    }

    /**
     * The stamp of a batch.
     *
     * @param prefix everything before the number, slash included
     * @param first number of the first record
     */
    public record OfBatch(String prefix, long first, int count) {}

    /** Parses the stamp of a batch; null when it is none. */
    public static OfBatch parseBatch(String stamp) {
        int slash = stamp == null ? -1 : stamp.lastIndexOf('/');
        int plus = stamp == null ? -1 : stamp.indexOf(COUNT, slash + 1);
        if (slash <= 0 || plus < 0) {
            return null;
        }
        long first = parseDigits(stamp, slash + 1, plus);
        long count = parseDigits(stamp, plus + 1, stamp.length());
        return first < 1 || count < 1 || count > Message.MAX_RECORDS
                ? null
                : new OfBatch(stamp.substring(0, slash + 1), first, (int) count);
    }

    /**
     * Parses decimal digits.
     *
     * @return -1 when there is anything else, nothing, or more than fits into a long
     */
    static long parseDigits(String text, int from, int to) {
        if (from >= to || to - from > MAX_LONG_DIGITS) {
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
