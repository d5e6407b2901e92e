package io.speck.mqtt;

import java.io.Serializable;
import java.net.URI;
import java.util.Locale;

/** Where a broker listens: {@code tcp://host:port}, normalised (lower case, port 1883 when absent). */
record BrokerAddress(String host, int port) implements Serializable {
    private static final int DEFAULT_PORT = 1883;

    /**
     * Reads {@code tcp://host[:port][/]} (also {@code mqtt://}).
     *
     * @throws IllegalArgumentException when it is anything else
     */
    static BrokerAddress parse(String text) {
        try {
            URI uri = URI.create(text.trim());
            boolean known = "tcp".equals(uri.getScheme()) || "mqtt".equals(uri.getScheme());
            if (known && uri.getHost() != null) {
                int port = uri.getPort() < 0 ? DEFAULT_PORT : uri.getPort();
                return new BrokerAddress(uri.getHost().toLowerCase(Locale.ROOT), port);
            }
        } catch (IllegalArgumentException e) {
            throw bad(text, e);
        }
        throw bad(text, null);
    }

    @Override
    public String toString() {
        return "tcp://" + host + ":" + port;
    }

    private static IllegalArgumentException bad(String text, Exception cause) {
        return new IllegalArgumentException(
                "cannot use the broker address \"" + text + "\": it must be tcp://host:port", cause);
    }
}
