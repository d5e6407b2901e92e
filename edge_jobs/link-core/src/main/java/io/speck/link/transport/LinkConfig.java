package io.speck.link.transport;

import java.io.Serializable;

/**
 * One end of a link: which broker, which topic, under which client id.
 *
 * @param clientId by which the broker knows this end: of a reader, whose place it keeps
 * @param window of a source, the most messages that may be unacknowledged; of a sink, the most
 *     under way at once
 */
public record LinkConfig(
        BrokerAddress broker, String topic, String clientId, Delivery delivery, int window)
        implements Serializable {
    /**
     * One less than the most that MQTT knows: that is the default of its Receive Maximum, so the
     * client library leaves it out, and Mosquitto then takes its own max_inflight_messages for it.
     */
    public static final int MAX_WINDOW = 65534;

    public LinkConfig {
        if (window < 1) {
            throw new IllegalArgumentException(
                    "cannot use a window of " + window + ": it must be 1 to " + MAX_WINDOW);
        }
        window = Math.min(window, MAX_WINDOW);
    }

    @Override
    public String toString() {
        return broker + " " + topic;
    }
}
