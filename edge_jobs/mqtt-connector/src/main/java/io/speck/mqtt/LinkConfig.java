package io.speck.mqtt;

import java.io.Serializable;

/**
 * One end of a link: which broker, which topic, under which client id.
 *
 * @param window source: the Receive Maximum to announce; sink: most messages under way at once
 */
record LinkConfig(
        BrokerAddress broker, String topic, String clientId, Delivery delivery, int window)
        implements Serializable {
    /**
     * One less than the protocol's most: that one is the Receive Maximum's default, the client
     * library leaves it out, and Mosquitto then takes its own max_inflight_messages for it.
     */
    static final int MOST_WINDOW = 65534;

    LinkConfig {
        if (window < 1) {
            throw new IllegalArgumentException(
                    "cannot use a window of " + window + ": it must be 1 to " + MOST_WINDOW);
        }
        window = Math.min(window, MOST_WINDOW);
    }

    @Override
    public String toString() {
        return broker + " " + topic;
    }
}
