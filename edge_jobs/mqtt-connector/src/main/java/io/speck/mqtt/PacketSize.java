package io.speck.mqtt;

/**
 * How many bytes a PUBLISH takes on the wire, below TLS: fixed header, topic, packet id,
 * properties, payload (MQTT 5, section 3.3).
 */
final class PacketSize {
    /** What a topic alias takes among the properties. */
    static final int ALIAS = 3;

    private PacketSize() {}

    /**
     * @param topic its bytes; 0 when an alias stands for it
     * @param acknowledged above QoS 0: there is a packet id
     * @param properties their bytes; -1: MQTT 3.1.1, which has none
     */
    static int publish(int topic, boolean acknowledged, int properties, int payload) {
        int length = 2 + topic + (acknowledged ? 2 : 0) + payload;
        if (properties >= 0) {
            length += lengthOf(properties) + properties;
        }
        return 1 + lengthOf(length) + length;
    }

    /** How many bytes a number takes in seven bits each. */
    static int lengthOf(int number) {
        int bytes = 1;
        for (int left = number >>> 7; left > 0; left >>>= 7) {
            bytes++;
        }
        return bytes;
    }

    /** How many decimal digits a number has that is not negative. */
    static int digitsOf(long number) {
        int digits = 1;
        for (long left = number; left >= 10; left /= 10) {
            digits++;
        }
        return digits;
    }
}
