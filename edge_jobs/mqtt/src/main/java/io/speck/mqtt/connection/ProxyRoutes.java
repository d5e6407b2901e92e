package io.speck.mqtt.connection;

import java.util.HashMap;
import java.util.Map;

/**
 * Proxies through which some brokers are reached, for a site that reaches other sites only through
 * a gateway or a tunnel. A broker keeps its own address in everything else.
 *
 * <p>Written as {@code host:port=host:port}, joined by commas: the broker's address, then the
 * proxy's.
 */
final class ProxyRoutes {
    static final String PROPERTY = "speck.mqtt.via";
    static final String VARIABLE = "SPECK_MQTT_VIA";

    private final Map<String, MqttAddress> proxies;

    private ProxyRoutes(Map<String, MqttAddress> proxies) {
        this.proxies = proxies;
    }

    /** Loads the routes from the system property, or else the environment variable. */
    static ProxyRoutes load() {
        return parse(System.getProperty(PROPERTY, System.getenv(VARIABLE)));
    }

    /**
     * Parses the value of the variable; null and blank mean no routes.
     *
     * @throws IllegalArgumentException when it cannot be read
     */
    static ProxyRoutes parse(String text) {
        Map<String, MqttAddress> proxies = new HashMap<>();
        if (text != null && !text.isBlank()) {
            for (String entry : text.split(",")) {
                String[] pair = entry.trim().split("=");
                if (pair.length != 2) {
                    throw new IllegalArgumentException(
                            "cannot use " + VARIABLE + " \"" + entry.trim() + "\": write"
                                    + " broker:port=relay:port, joined by commas");
                }
                MqttAddress broker = MqttAddress.parse("tcp://" + pair[0].trim());
                proxies.put(key(broker), MqttAddress.parse("tcp://" + pair[1].trim()));
            }
        }
        return new ProxyRoutes(proxies);
    }

    /** Returns where to connect for a broker: its proxy, or the broker itself. */
    MqttAddress routeTo(MqttAddress broker) {
        MqttAddress proxy = proxies.get(key(broker));
        return proxy == null
                ? broker
                : new MqttAddress(proxy.host(), proxy.port(), broker.encrypted());
    }

    private static String key(MqttAddress broker) {
        return broker.host() + ":" + broker.port();
    }
}
