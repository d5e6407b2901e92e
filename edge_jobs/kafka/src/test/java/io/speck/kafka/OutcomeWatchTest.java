package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class OutcomeWatchTest {
    private static final long SECOND = 1_000_000_000L;

    private final OutcomeWatch watch = new OutcomeWatch(Duration.ofSeconds(10));

    @Test
    void aProducerThatSaysNothingForTooLongIsStuck() {
        assertFalse(watch.isStuck(5, 0, 0));
        assertFalse(watch.isStuck(9, 0, 10 * SECOND));
        assertTrue(watch.isStuck(9, 0, 11 * SECOND));
    }

    @Test
    void eachOutcomeBeginsTheTimeAnew() {
        assertFalse(watch.isStuck(5, 0, 0));
        assertFalse(watch.isStuck(5, 1, 9 * SECOND));
        assertFalse(watch.isStuck(5, 1, 19 * SECOND));
        assertTrue(watch.isStuck(5, 1, 20 * SECOND));
    }

    @Test
    void whoHasSentNothingWaitsForNothing() {
        assertFalse(watch.isStuck(5, 5, 0));
        assertFalse(watch.isStuck(5, 5, 100 * SECOND));
        assertFalse(watch.isStuck(6, 5, 101 * SECOND));
        assertFalse(watch.isStuck(6, 5, 111 * SECOND));
        assertTrue(watch.isStuck(6, 5, 112 * SECOND));
    }
}
