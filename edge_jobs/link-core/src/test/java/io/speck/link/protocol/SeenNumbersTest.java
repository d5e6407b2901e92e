package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class SeenNumbersTest {
    private static final ProducerEpoch EPOCH = ProducerEpoch.of("p", 7);

    private final SeenNumbers seen = new SeenNumbers("p");

    private void add(long epoch, long... numbers) {
        for (long number : numbers) {
            seen.add(new SentNumber("p", epoch, number));
        }
    }

    @Test
    void coversWhatWasSeenAndNothingElse() {
        add(7, 1, 2, 3, 6, 7);
        assertTrue(seen.covers(EPOCH, 1, 3));
        assertTrue(seen.covers(EPOCH, 6, 7));
        assertFalse(seen.covers(EPOCH, 3, 6));
        assertFalse(seen.covers(EPOCH, 5, 5));
        assertFalse(seen.covers(EPOCH, 7, 8));
        assertFalse(seen.covers(ProducerEpoch.of("p", 8), 1, 1));
        assertFalse(seen.covers(ProducerEpoch.of("q", 7), 1, 1));
    }

    @Test
    void reachesWhatComesBeforeTheLast() {
        add(7, 6, 7);
        assertTrue(seen.reaches(EPOCH, 1));
        assertTrue(seen.reaches(EPOCH, 7));
        assertFalse(seen.reaches(EPOCH, 8));
        assertFalse(seen.reaches(ProducerEpoch.of("p", 6), 1));
    }

    @Test
    void reachesBackToWhatWasSentNoLater() {
        add(7, 6, 7);
        assertTrue(seen.reachBackTo(new SentNumber("p", 7, 6)));
        assertFalse(seen.reachBackTo(new SentNumber("p", 7, 5)));
        assertTrue(seen.reachBackTo(new SentNumber("p", 8, 1)), "an earlier epoch was seen");
        assertFalse(seen.reachBackTo(new SentNumber("p", 6, 9)));
    }

    @Test
    void othersDoNotCount() {
        seen.add(null);
        seen.add(new SentNumber("q", 7, 1));
        assertTrue(seen.isEmpty());
        assertFalse(seen.covers(EPOCH, 1, 1));
        assertFalse(seen.reaches(EPOCH, 1));
    }

    @Test
    void theOrderDoesNotMatter() {
        Random random = new Random(5);
        for (int round = 0; round < 50; round++) {
            SeenNumbers some = new SeenNumbers("p");
            Set<Long> added = new HashSet<>();
            List<Long> numbers = new ArrayList<>();
            for (long number = 1; number <= 40; number++) {
                numbers.add(number);
            }
            Collections.shuffle(numbers, random);
            for (long number : numbers.subList(0, random.nextInt(40))) {
                added.add(number);
                some.add(new SentNumber("p", 7, number));
                some.add(new SentNumber("p", 7, number));
            }
            for (long number = 1; number <= 41; number++) {
                assertEquals(added.contains(number), some.covers(EPOCH, number, number));
                boolean both = added.contains(number) && added.contains(number + 1);
                assertEquals(both, some.covers(EPOCH, number, number + 1));
            }
        }
    }
}
