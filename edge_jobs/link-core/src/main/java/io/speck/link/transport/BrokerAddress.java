package io.speck.link.transport;

import java.io.Serializable;

/**
 * Where a broker listens, as its transport has normalised it: {@code scheme://hosts}.
 *
 * @param hosts {@code host:port}; joined by commas where a broker has several
 */
public record BrokerAddress(String scheme, String hosts) implements Serializable {
    private static final String SEPARATOR = "://";

    /**
     * Reads what {@link #toString} has written; {@link Transports#parse} reads what people write.
     *
     * @throws IllegalArgumentException when it is no address
     */
    public static BrokerAddress ofNormalised(String text) {
        int end = text.indexOf(SEPARATOR);
        if (end <= 0) {
            throw new IllegalArgumentException(
                    "cannot use the broker address \"" + text + "\": it has no scheme");
        }
        return new BrokerAddress(
                text.substring(0, end), text.substring(end + SEPARATOR.length()));
    }

    @Override
    public String toString() {
        return scheme + SEPARATOR + hosts;
    }
}
