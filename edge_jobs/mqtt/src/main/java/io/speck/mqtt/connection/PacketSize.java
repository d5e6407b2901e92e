package io.speck.mqtt.connection;

import io.speck.link.protocol.Sizes;

/**
 * Computes how many bytes a PUBLISH takes on the wire, below TLS: fixed header, topic, packet id,
 * properties, payload (MQTT 5, section 3.3).
 */
public final class PacketSize {
    /** What a topic alias takes among the properties. */
    public static final int ALIAS = 3;

    /** No properties, not even their length: MQTT 3.1.1. */
    public static final int NO_PROPERTIES = -1;

    private PacketSize() {}

    /**
     * Returns the size of a packet in bytes.
     *
     * @param topic bytes of the topic; 0 when an alias stands for it
     * @param acknowledged above QoS 0: there is a packet id
     * @param properties bytes of the properties, or {@link #NO_PROPERTIES}
     * @param payload bytes of the payload
     */
    public static int ofPublish(int topic, boolean acknowledged, int properties, int payload) {
        int length = 2 + topic + (acknowledged ? 2 : 0) + payload;
        if (properties != NO_PROPERTIES) {
            length += Sizes.lengthOf(properties) + properties;
        }
        return 1 + Sizes.lengthOf(length) + length;
    }
}
