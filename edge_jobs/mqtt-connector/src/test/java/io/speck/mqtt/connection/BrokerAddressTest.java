package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Locale;
import org.junit.jupiter.api.Test;

class BrokerAddressTest {
    @Test
    void deliveryIsOneOfThree() {
        for (Delivery delivery : Delivery.values()) {
            assertEquals(delivery, Delivery.parse(delivery.name().toLowerCase(Locale.ROOT)));
        }
        assertThrows(IllegalArgumentException.class, () -> Delivery.parse("twice"));
    }

    @Test
    void addressesAreNormalised() {
        assertEquals("tcp://host:1883", BrokerAddress.parse("tcp://HOST/").toString());
        assertEquals(9, BrokerAddress.parse("tcp://[::1]:9").port());
        assertEquals("ssl://host:8883", BrokerAddress.parse("mqtts://Host").toString());
        assertEquals("ssl://host:1883", BrokerAddress.parse("ssl://host:1883/").toString());
        assertTrue(BrokerAddress.parse("ssl://host").encrypted());
        assertFalse(BrokerAddress.parse("mqtt://host").encrypted());
        assertThrows(IllegalArgumentException.class, () -> BrokerAddress.parse("http://a:1"));
        assertThrows(IllegalArgumentException.class, () -> BrokerAddress.parse("a:1"));
    }
}
