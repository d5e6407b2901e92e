package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class StampTest {
    @Test
    void producersAreNamedByTheirClientId() {
        assertEquals("0a1b2c3d-my-job", Stamp.producerOf("speck-0a1b2c3d-my-job-12345678"));
    }
}
