package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class NumberRangesTest {
    @Test
    void agreesWithASetInAnyOrder() {
        Random random = new Random(42);
        for (int round = 0; round < 500; round++) {
            NumberRanges ranges = new NumberRanges();
            TreeSet<Long> oracle = new TreeSet<>();
            int span = 1 + random.nextInt(60);
            for (int i = 0; i < 80; i++) {
                long number = 1 + random.nextInt(span);
                assertEquals(oracle.add(number), ranges.add(number));
                assertEquals(oracle.last(), ranges.highest());
                long missing = oracle.last() - oracle.first() + 1 - oracle.size();
                assertEquals(missing, ranges.missing());
            }
        }
    }

    @Test
    void lateNumbersBelowTheFirstAreTakenToo() {
        NumberRanges ranges = new NumberRanges();
        ranges.add(11);
        ranges.add(12);
        assertEquals(12, ranges.contiguous());
        assertEquals(0, ranges.missing());
        assertTrue(ranges.add(5));
        assertEquals(5, ranges.contiguous());
        assertEquals(5, ranges.missing());
        assertFalse(ranges.add(12));
    }

    @Test
    void isBoundedUnderScatteredLoss() {
        NumberRanges ranges = new NumberRanges();
        int last = 10 * NumberRanges.MAX_RANGES;
        for (int number = 1; number <= last; number += 2) {
            assertTrue(ranges.add(number));
        }
        assertEquals(last / 2 - 1, ranges.missing());
        assertEquals(last - 1, ranges.highest());
        assertTrue(ranges.toString().split(",").length <= NumberRanges.MAX_RANGES);
        assertFalse(ranges.add(2), "its hole was closed");
        assertTrue(ranges.add(last - 2));
        assertEquals(last / 2 - 2, ranges.missing());
        assertEquals(ranges.missing(), ranges.copy().missing());
    }

    @Test
    void aGapWhileAwayIsNoLossButItsNumbersAreTaken() {
        NumberRanges ranges = new NumberRanges();
        ranges.add(1);
        ranges.add(3);
        ranges.leave();
        assertFalse(ranges.add(3));
        assertTrue(ranges.add(100));
        assertEquals(1, ranges.missing(), "as before");
        assertEquals(100, ranges.contiguous());
        assertTrue(ranges.add(50));
        assertFalse(ranges.add(50));
        assertEquals(1, ranges.missing());
        assertEquals(100, ranges.contiguous());
        ranges.add(103);
        assertEquals(3, ranges.missing());
    }

    @Test
    void fromZeroAHoleAtTheBeginningIsMissing() {
        NumberRanges ranges = new NumberRanges();
        ranges.startAtZero();
        ranges.add(3);
        assertEquals(0, ranges.contiguous());
        assertEquals(2, ranges.missing());
    }
}
