package io.speck.link.protocol;

/**
 * What every message of our sinks carries beside its payload, under the name {@value #PROPERTY} (a
 * user property of MQTT 5, a header of Kafka): {@code <producer>/<epoch>/<number>}. Numbers start at
 * 1 in each epoch of a producer.
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

    /** The same for the client id of a sink, which may end with {@code -out}. */
    public static String producerOfSink(String clientId) {
        return producerOf(clientId.replaceFirst("-out$", ""));
    }

    /**
     * The producer of one link of a port that has several: its name has the link's hash, too, since
     * a reader may change from one link of the port to another.
     */
    public static String producerInPort(String clientId) {
        return clientId.replaceFirst("^" + CLIENT_ID_PREFIX, "").replaceFirst("-out$", "");
    }

    /** Parses the stamp of one record; null when it is none. */
    public static SentNumber parseNumber(String stamp) {
        int slash = stamp.lastIndexOf('/');
        int nameEnd = stamp.lastIndexOf('/', slash - 1);
        long epoch = nameEnd <= 0 ? -1 : parseDigits(stamp, nameEnd + 1, slash);
        long number = parseDigits(stamp, slash + 1, stamp.length());
        return epoch < 0 || number < 1
                ? null
                : new SentNumber(stamp.substring(0, nameEnd), epoch, number);
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
