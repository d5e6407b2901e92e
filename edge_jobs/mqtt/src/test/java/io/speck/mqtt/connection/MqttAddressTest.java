package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.transport.Delivery;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import org.junit.jupiter.api.Test;

class MqttAddressTest {
    @Test
    void deliveryIsOneOfThree() {
        for (Delivery delivery : Delivery.values()) {
            assertEquals(delivery, Delivery.parse(delivery.name().toLowerCase(Locale.ROOT)));
        }
        assertThrows(IllegalArgumentException.class, () -> Delivery.parse("twice"));
    }

    /** The control plane's test reads the same table: what it accepts is accepted here. */
    @Test
    void whatTheControlPlaneAcceptsIsAccepted() throws IOException {
        for (String line : Files.readAllLines(Path.of("src/test/resources/addresses.txt"))) {
            String normalised = line.substring(line.indexOf(' ') + 1);
            assertEquals(normalised, MqttAddress.parse(normalised).toString());
        }
    }

    @Test
    void addressesAreNormalised() {
        assertEquals("tcp://host:1883", MqttAddress.parse("tcp://HOST/").toString());
        assertEquals(9, MqttAddress.parse("tcp://[::1]:9").port());
        assertEquals("ssl://host:8883", MqttAddress.parse("mqtts://Host").toString());
        assertEquals("ssl://host:1883", MqttAddress.parse("ssl://host:1883/").toString());
        assertTrue(MqttAddress.parse("ssl://host").encrypted());
        assertFalse(MqttAddress.parse("mqtt://host").encrypted());
        assertThrows(IllegalArgumentException.class, () -> MqttAddress.parse("http://a:1"));
        assertThrows(IllegalArgumentException.class, () -> MqttAddress.parse("a:1"));
    }
}
