package io.speck.kafka;

import io.speck.link.transport.BrokerAddress;
import java.net.URI;
import java.util.Arrays;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;

/** Parses {@code kafka://host:port,host:port} and {@code kafka+ssl://host:port}. */
final class KafkaAddress {
    static final String PLAIN = "kafka";
    static final String ENCRYPTED = "kafka+ssl";
    static final Set<String> SCHEMES = Set.of(PLAIN, ENCRYPTED);
    static final String EXAMPLE = "kafka://host:port";

    private static final int DEFAULT_PORT = 9092;
    private static final int DEFAULT_TLS_PORT = 9093;

    private KafkaAddress() {}

    /** @throws IllegalArgumentException when it is anything else */
    static BrokerAddress parse(String text) {
        int end = text.indexOf("://");
        String scheme = end < 0 ? "" : text.substring(0, end).toLowerCase(Locale.ROOT);
        String rest = end < 0 ? "" : text.substring(end + 3).replaceFirst("/$", "");
        if (!SCHEMES.contains(scheme) || rest.isEmpty()) {
            throw refuse(text, null);
        }
        int port = scheme.equals(ENCRYPTED) ? DEFAULT_TLS_PORT : DEFAULT_PORT;
        String hosts =
                Arrays.stream(rest.split(",", -1))
                        .map(host -> parseHost(text, host, port))
                        .sorted()
                        .distinct()
                        .collect(Collectors.joining(","));
        return new BrokerAddress(scheme, hosts);
    }

    private static String parseHost(String text, String host, int defaultPort) {
        try {
            URI uri = URI.create("kafka://" + host.trim());
            if (uri.getHost() != null && uri.getPath().isEmpty() && uri.getUserInfo() == null) {
                int port = uri.getPort() < 0 ? defaultPort : uri.getPort();
                return uri.getHost().toLowerCase(Locale.ROOT) + ":" + port;
            }
        } catch (IllegalArgumentException e) {
            throw refuse(text, e);
        }
        throw refuse(text, null);
    }

    private static IllegalArgumentException refuse(String text, Exception cause) {
        return new IllegalArgumentException(
                "cannot use the broker address \"%s\": it must be %s, %s://host:port, or several"
                        .formatted(text, EXAMPLE, ENCRYPTED)
                        + " hosts joined by commas",
                cause);
    }
}
