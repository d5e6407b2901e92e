package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class EpochsTest {
    @Test
    void epochsOnlyRise() {
        Random random = new Random(7);
        long epoch = Epochs.choose(2, random, List.of());
        assertEquals(2, epoch >> 22);
        for (int i = 0; i < 50; i++) {
            long next = Epochs.choose(2, random, List.of(new SinkState("", epoch, 9, false, null)));
            assertTrue(next > epoch);
            assertEquals(2, next >> 22);
            epoch = next;
        }
        long later = 5L << 22;
        assertTrue(Epochs.choose(2, random, List.of(new SinkState("", later, 9, false, null))) > later);
    }

    /** After a restore the store counts attempts from the milliseconds since 2020. */
    @Test
    void epochsOfARestoredStoreRise() {
        Random random = new Random(7);
        long before = 0;
        for (long attempt : new long[] {1, 1000, 218_000_000_000L, 218_000_000_001L, 2_000_000_000_000L}) {
            long epoch = Epochs.choose(attempt, random, List.of());
            assertTrue(epoch > before, () -> attempt + " begins at " + epoch);
            before = epoch;
        }
    }

    /** Two openings from the same state must not number different records alike. */
    @Test
    void epochsAreNeverUsedTwice() {
        List<SinkState> restored =
                List.of(new SinkState("", (2L << 22) + (1L << 21), 9, false, null));
        Random random = new Random(7);
        assertEquals(100, random(random, List.of()).size());
        assertEquals(100, random(random, restored).size());
    }

    private static Set<Long> random(Random random, List<SinkState> restored) {
        Set<Long> epochs = new HashSet<>();
        for (int i = 0; i < 100; i++) {
            epochs.add(Epochs.choose(2, random, restored));
        }
        return epochs;
    }
}
