package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import org.apache.flink.metrics.SimpleCounter;
import org.junit.jupiter.api.Test;

class ResendWindowTest {
    private static final long SECOND = 1_000_000_000L;

    private final SimpleCounter cut = new SimpleCounter();
    private final ArrayDeque<OutRecord> queue = new ArrayDeque<>();

    private ResendWindow window(int seconds, long bytes) {
        return new ResendWindow(Duration.ofSeconds(seconds), bytes, cut);
    }

    private static OutRecord record(long number) {
        return new OutRecord(null, number, new byte[100]);
    }

    private List<Long> numbers() {
        return queue.stream().map(record -> record.number).toList();
    }

    @Test
    void keepsWhatIsYoungAndPutsItFirst() {
        ResendWindow window = window(15, 1_000_000);
        for (int i = 1; i <= 5; i++) {
            window.add(record(i), i * 10 * SECOND);
        }
        window.prune(51 * SECOND);
        queue.add(record(6));
        window.moveBefore(queue);
        assertEquals(List.of(4L, 5L, 6L), numbers());
        assertEquals(0, window.size());
        assertEquals(0, cut.getCount());
    }

    @Test
    void isBoundedAndCountsWhatItCuts() {
        ResendWindow window = window(15, 3 * (100 + ResendWindow.OVERHEAD_BYTES));
        for (int i = 1; i <= 5; i++) {
            window.add(record(i), 0);
        }
        assertEquals(2, cut.getCount());
        window.moveBefore(queue);
        assertEquals(List.of(3L, 4L, 5L), numbers());
        window.add(record(6), 0); // the bound counts from zero again
        assertEquals(2, cut.getCount());
    }

    @Test
    void ofNoTimeKeepsNothing() {
        ResendWindow window = window(0, 1_000_000);
        window.add(record(1), 0);
        assertEquals(0, window.size());
        assertEquals(0, cut.getCount());
    }
}
