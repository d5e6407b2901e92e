package io.speck.mqtt;

import java.util.HashMap;
import java.util.Map;

/**
 * Where connections to some brokers go instead: to relays that pass them on, for a site that reaches
 * other sites only through a gateway or a tunnel. A broker keeps its name in everything else.
 *
 * <p>Given as {@code host:port=host:port}, joined by commas: the broker's address, then the relay's.
 */
final class Via {
    static final String PROPERTY = "speck.mqtt.via";
    static final String VARIABLE = "SPECK_MQTT_VIA";

    private final Map<String, BrokerAddress> relays;

    private Via(Map<String, BrokerAddress> relays) {
        this.relays = relays;
    }

    /** As this JVM was told. */
    static Via configured() {
        return parse(System.getProperty(PROPERTY, System.getenv(VARIABLE)));
    }

    /**
     * Reads what the variable says; null and blank mean none.
     *
     * @throws IllegalArgumentException when it cannot be read
     */
    static Via parse(String text) {
        Map<String, BrokerAddress> relays = new HashMap<>();
        if (text != null && !text.isBlank()) {
            for (String entry : text.split(",")) {
                String[] pair = entry.trim().split("=");
                if (pair.length != 2) {
                    throw new IllegalArgumentException(
                            "cannot use " + VARIABLE + " \"" + entry.trim() + "\": write"
                                    + " broker:port=relay:port, joined by commas");
                }
                BrokerAddress broker = BrokerAddress.parse("tcp://" + pair[0].trim());
                relays.put(key(broker), BrokerAddress.parse("tcp://" + pair[1].trim()));
            }
        }
        return new Via(relays);
    }

    /** Where to connect for a broker: its relay, or the broker itself. */
    BrokerAddress to(BrokerAddress broker) {
        BrokerAddress relay = relays.get(key(broker));
        return relay == null
                ? broker
                : new BrokerAddress(relay.host(), relay.port(), broker.encrypted());
    }

    private static String key(BrokerAddress broker) {
        return broker.host() + ":" + broker.port();
    }
}
