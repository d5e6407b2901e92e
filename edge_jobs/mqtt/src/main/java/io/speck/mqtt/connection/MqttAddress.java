package io.speck.mqtt.connection;

import io.speck.link.transport.BrokerAddress;
import java.net.URI;
import java.util.Locale;
import java.util.Set;

/**
 * Where a broker listens: {@code tcp://host:port} or {@code ssl://host:port}, normalised (lower
 * case, port 1883 or 8883 when absent).
 *
 * @param encrypted whether it wants TLS
 */
record MqttAddress(String host, int port, boolean encrypted) {
    static final Set<String> SCHEMES = Set.of("tcp", "mqtt", "ssl", "mqtts");
    static final String EXAMPLE = "tcp://host:port or ssl://host:port";

    private static final int DEFAULT_PORT = 1883;
    private static final int DEFAULT_TLS_PORT = 8883;

    /**
     * Reads {@code tcp://host[:port][/]} (also {@code mqtt://}) and {@code ssl://host[:port][/]}
     * (also {@code mqtts://}).
     *
     * @throws IllegalArgumentException when it is anything else
     */
    static MqttAddress parse(String text) {
        try {
            URI uri = URI.create(text.trim());
            String scheme = uri.getScheme() == null ? "" : uri.getScheme();
            boolean encrypted = scheme.equals("ssl") || scheme.equals("mqtts");
            boolean known = encrypted || scheme.equals("tcp") || scheme.equals("mqtt");
            if (known && uri.getHost() != null) {
                int defaultPort = encrypted ? DEFAULT_TLS_PORT : DEFAULT_PORT;
                int port = uri.getPort() < 0 ? defaultPort : uri.getPort();
                return new MqttAddress(uri.getHost().toLowerCase(Locale.ROOT), port, encrypted);
            }
        } catch (IllegalArgumentException e) {
            throw refuse(text, e);
        }
        throw refuse(text, null);
    }

    static MqttAddress of(BrokerAddress broker) {
        return parse(broker.toString());
    }

    BrokerAddress toBrokerAddress() {
        return new BrokerAddress(encrypted ? "ssl" : "tcp", host + ":" + port);
    }

    @Override
    public String toString() {
        return toBrokerAddress().toString();
    }

    private static IllegalArgumentException refuse(String text, Exception cause) {
        return new IllegalArgumentException(
                "cannot use the broker address \"" + text + "\": it must be " + EXAMPLE,
                cause);
    }
}
