package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class PacketSizeTest {
    @Test
    void countsWhatTheProtocolWrites() {
        // 30 05 00 01 74 00 78: type, length, topic "t", no properties, payload "x"
        assertEquals(7, PacketSize.ofPublish(1, false, 0, 1));
        // 32 07 00 01 74 00 01 00 78: packet id 1 besides
        assertEquals(9, PacketSize.ofPublish(1, true, 0, 1));
        // MQTT 3.1.1 has no length of properties
        assertEquals(8, PacketSize.ofPublish(1, true, -1, 1));
    }
}
