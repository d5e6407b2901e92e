package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.Parameters;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FeedTest {
    private static final long SECOND = 1_000_000_000L;

    @TempDir Path folder;
    private final AtomicLong now = new AtomicLong(1);
    private final List<byte[]> out = new ArrayList<>();

    private Feed.Maker maker(String rate) throws Exception {
        return maker(rate, "10000000");
    }

    private Feed.Maker maker(String rate, String most) throws Exception {
        Path file = folder.resolve("records");
        Files.writeString(file, ",\"a\":1}\n,\"a\":2}\n");
        Feed.Maker maker =
                new Feed.Maker(
                        Parameters.of(
                                "--records", file.toString(), "--full", "2s", "--rated", "3s",
                                "--rate", rate, "--most", most),
                        now::get);
        maker.open(null);
        return maker;
    }

    private void ticks(Feed.Maker maker, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            maker.flatMap(0L, new ListCollector<>(out));
        }
    }

    @Test
    void feedsFullyThenNotAtAllThenAtItsRateAndThenSaysThatItIsOver() throws Exception {
        Feed.Maker maker = maker("10");
        ticks(maker, 100);
        assertEquals(100, out.size());
        String second = new String(out.get(1));
        assertTrue(second.matches("\\{\"id\":2,\"time_ms\":\\d{13},\"a\":2}"), second);
        assertTrue(new String(out.get(2)).endsWith(",\"a\":1}"));
        now.set(1 + 2 * SECOND);
        ticks(maker, 5);
        assertEquals(101, out.size());
        assertEquals("{\"end\":false,\"id\":100}", new String(out.get(100)));
        now.set(1 + 3 * SECOND + SECOND / 2);
        ticks(maker, 10);
        assertEquals(106, out.size());
        now.set(1 + 6 * SECOND);
        ticks(maker, 10);
        assertEquals(107, out.size());
        assertEquals("{\"end\":true,\"id\":105}", new String(out.get(106)));
    }

    @Test
    void atFullSpeedItMakesNoMoreThanItMay() throws Exception {
        Feed.Maker maker = maker("10", "50");
        ticks(maker, 200);
        assertEquals(6, out.size(), "a tenth of a second, at most");
        now.set(1 + SECOND / 50);
        ticks(maker, 20);
        assertEquals(7, out.size());
        now.set(1 + SECOND);
        ticks(maker, 20);
        assertEquals(13, out.size(), "what was not taken in time is not made up for");
    }

    @Test
    void refusesARateOfNothing() {
        assertEquals(
                "cannot use --rate 0: it must be at least 1",
                assertThrows(IllegalArgumentException.class, () -> maker("0")).getMessage());
    }
}
