package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class IdRangesTest {
    @Test
    void staysOneRangeForIdsInARow() {
        IdRanges ids = new IdRanges();
        for (long id = 5; id < 1000; id++) {
            assertTrue(ids.add(id));
        }
        assertFalse(ids.add(5));
        assertFalse(ids.add(500));
        assertEquals("[5, 999]", ids.toString());
    }

    @Test
    void joinsRangesWhenAGapIsFilled() {
        IdRanges ids = new IdRanges();
        for (long id : new long[] {1, 3, 7, 5, 6, 2}) {
            assertTrue(ids.add(id));
        }
        assertEquals("[1, 3, 5, 7]", ids.toString());
        assertTrue(ids.add(4));
        assertEquals("[1, 7]", ids.toString());
    }

    @Test
    void isASet() {
        Random random = new Random(7);
        for (int round = 0; round < 200; round++) {
            IdRanges ids = new IdRanges();
            Set<Long> expected = new HashSet<>();
            for (int i = 0; i < 100; i++) {
                long id = 1 + random.nextInt(60);
                assertEquals(expected.add(id), ids.add(id), ids + " + " + id);
            }
            long size = 0;
            for (int i = 0; i < ids.bounds.length; i += 2) {
                size += ids.bounds[i + 1] - ids.bounds[i] + 1;
                assertTrue(i == 0 || ids.bounds[i] > ids.bounds[i - 1] + 1, ids.toString());
            }
            assertEquals(expected.size(), size);
        }
    }

    @Test
    void takesTheLargestIds() {
        IdRanges ids = new IdRanges();
        assertTrue(ids.add(Long.MAX_VALUE));
        assertTrue(ids.add(1));
        assertFalse(ids.add(Long.MAX_VALUE));
        assertTrue(ids.add(Long.MAX_VALUE - 1));
    }
}
