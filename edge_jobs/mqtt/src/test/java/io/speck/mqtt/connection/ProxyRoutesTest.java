package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class ProxyRoutesTest {
    private static final MqttAddress FAR = MqttAddress.parse("tcp://far.example:1884");
    private static final MqttAddress OWN = MqttAddress.parse("ssl://own.example");

    @Test
    void brokersWithARelayAreReachedThere() {
        ProxyRoutes routes = ProxyRoutes.parse("Far.example:1884=127.0.0.1:9001, own.example:8883=gate:9002");
        assertEquals(MqttAddress.parse("tcp://127.0.0.1:9001"), routes.routeTo(FAR));
        assertEquals(MqttAddress.parse("ssl://gate:9002"), routes.routeTo(OWN));
        assertEquals(
                MqttAddress.parse("tcp://far.example:1885"),
                routes.routeTo(MqttAddress.parse("tcp://far.example:1885")));
    }

    @Test
    void nothingSaidMeansTheBrokersThemselves() {
        for (String text : new String[] {null, "", "  "}) {
            assertEquals(FAR, ProxyRoutes.parse(text).routeTo(FAR));
        }
    }

    @Test
    void whatCannotBeReadIsRefused() {
        for (String text : new String[] {"far:1", "a:1=b:2=c:3", "=b:2", "a:1=b:2,,c:1=d:1", "a:x=b:1"}) {
            assertThrows(IllegalArgumentException.class, () -> ProxyRoutes.parse(text), text);
        }
    }
}
