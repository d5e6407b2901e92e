package io.speck.link.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class LinkConfigTest {
    @Test
    void leavesTheWindowAsItIs() {
        assertEquals(10_000, link(10_000).window());
    }

    /**
     * The client library leaves out a Receive Maximum of 65535, and Mosquitto has another default.
     */
    @Test
    void staysBelowTheProtocolsDefault() {
        assertEquals(65_534, link(65_535).window());
        assertEquals(65_534, link(1_000_000).window());
    }

    @Test
    void refusesAWindowOfNothing() {
        assertThrows(IllegalArgumentException.class, () -> link(0));
    }

    private static LinkConfig link(int window) {
        BrokerAddress broker = BrokerAddress.ofNormalised("tcp://127.0.0.1:1883");
        return new LinkConfig(broker, "t", "speck-1-a-2", Delivery.AT_LEAST_ONCE, window);
    }
}
