package io.speck.mqtt;

/**
 * What every message of our sinks carries in the MQTT 5 user property {@value #PROPERTY}: {@code
 * <producer>/<epoch>/<number>}. Numbers start at 1 in each epoch of a producer.
 */
final class Stamp {
    static final String PROPERTY = "speck";

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
