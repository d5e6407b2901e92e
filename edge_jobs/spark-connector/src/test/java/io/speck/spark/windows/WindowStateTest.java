package io.speck.spark.windows;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Batches of the operator, with the state as bytes between them, without Spark. */
class WindowStateTest {
    private static final long IDLE_LIMIT = 120_000;
    private static final long STEP = IDLE_LIMIT / 4; // the most that counts between two batches

    private byte[] state;
    private long nowMs = 1_000_000_000;
    private Map<String, Long> counts = Map.of();

    private static ClockedWindows windows(String statistic, String... more) {
        Map<String, String> arguments = new HashMap<>(Map.of("streams", "A1,A2"));
        for (int i = 0; i < more.length; i += 2) {
            arguments.put(more[i], more[i + 1]);
        }
        return ClockedWindows.of(statistic, arguments);
    }

    private static String at(String stream, long id, long timeMs) {
        return at(stream, id, timeMs, 10);
    }

    private static String at(String stream, long id, long timeMs, double speed) {
        return String.format(
                Locale.ROOT,
                "{\"id\":%d,\"stream\":\"%s\",\"time_ms\":%d,\"sensor\":\"%s-01\","
                        + "\"vehicle\":\"v\",\"speed_mps\":%s,\"length_m\":5,\"type\":\"car\"}",
                id,
                stream,
                timeMs,
                stream,
                speed);
    }

    private static String end(String stream, long timeMs) {
        return "{\"end\":true,\"stream\":\"" + stream + "\",\"time_ms\":" + timeMs + "}";
    }

    private static List<byte[]> bytes(String... records) {
        List<byte[]> all = new ArrayList<>();
        for (String record : records) {
            all.add(record.getBytes(StandardCharsets.UTF_8));
        }
        return all;
    }

    /** Runs a batch, some milliseconds after the last one. */
    private List<String> run(ClockedWindows windows, long afterMs, String... records)
            throws IOException {
        nowMs += afterMs;
        WindowState next = windows.restore(state, nowMs);
        BatchResults batch = next.run(bytes(records), nowMs);
        state = next.toBytes();
        counts = batch.counts();
        return batch.records().stream()
                .map(record -> new String(record, StandardCharsets.UTF_8))
                .toList();
    }

    /** Lets time pass without records. */
    private List<String> pass(ClockedWindows windows, long spanMs) throws IOException {
        List<String> results = new ArrayList<>();
        for (long left = spanMs; left > 0; left -= STEP) {
            results.addAll(run(windows, Math.min(left, STEP)));
        }
        return results;
    }

    private static String bySensor(long startMs, int count, double speed, int revision) {
        double occupancy = count * 500 / 60_000.0;
        return "{\"site\":\"A\",\"sensor\":\"A1-01\",\"window_start_ms\":" + startMs
                + ",\"window_ms\":60000,\"count\":" + count + ",\"mean_speed_mps\":" + speed
                + ",\"occupancy\":" + occupancy + ",\"revision\":" + revision + "}";
    }

    private static String overAll(long startMs, int count, String sites, int revision) {
        return "{\"window_start_ms\":" + startMs + ",\"window_ms\":60000,\"count\":" + count
                + ",\"mean_speed_mps\":10.0,\"sites\":{" + sites + "},\"types\":{\"car\":" + count
                + "},\"revision\":" + revision + "}";
    }

    @Test
    void aWindowOfASensorGivesTheRecordOfTheFlinkJob() throws Exception {
        ClockedWindows windows = windows("local_stats");
        assertEquals(List.of(), run(windows, 0, at("A1", 1, 1000), at("A1", 2, 59_999)));
        assertEquals(List.of(), run(windows, 0, at("A1", 3, 60_000)));
        assertEquals(List.of(bySensor(0, 2, 10.0, 0)), run(windows, 0, at("A2", 1, 60_000)));
        assertEquals(List.of(bySensor(0, 3, 10.0, 1)), run(windows, 0, at("A1", 4, 5)));
        assertEquals(Map.of("corrections", 1L), counts);
    }

    @Test
    void aDetectionCountsOnceOverAllSites() throws Exception {
        ClockedWindows windows = windows("merge", "streams", "A1,B1");
        run(windows, 0, at("B1", 1, 500), at("A1", 1, 1000), at("A1", 1, 1000));
        assertEquals(Map.of("repeats", 1L), counts);
        assertEquals(
                List.of(overAll(0, 2, "\"A\":1,\"B\":1", 0)),
                run(windows, 0, at("A1", 1, 1000), at("A1", 2, 60_000), at("B1", 2, 60_000)));
        assertEquals(
                List.of(overAll(0, 3, "\"A\":2,\"B\":1", 1)),
                run(windows, 0, at("B1", 1, 500), at("A1", 3, 600)));
    }

    @Test
    void whatComesAfterTheLatenessIsCounted() throws Exception {
        ClockedWindows windows = windows("merge", "streams", "A1", "lateness", "1m");
        run(windows, 0, at("A1", 1, 1000), at("A1", 2, 119_999));
        assertEquals(1, run(windows, 0, at("A1", 3, 2000)).size());
        run(windows, 0, at("A1", 4, 120_000));
        assertEquals(List.of(), run(windows, 0, at("A1", 5, 3000)));
        assertEquals(Map.of("late_dropped", 1L), counts);
    }

    @Test
    void badRecordsAndUndeclaredStreamsAreCounted() throws Exception {
        ClockedWindows windows = windows("merge");
        run(windows, 0, "nonsense", "{}", at("A1", 1, 1, 71), at("X1", 1, 1), end("A1", 1));
        assertEquals(Map.of("malformed", 1L, "impossible", 2L, "undeclared", 1L), counts);
    }

    @Test
    void jumpsInARowAreCountedAcrossBatches() throws Exception {
        ClockedWindows windows = windows("merge", "streams", "A1");
        run(windows, 0, at("A1", 1, 1000));
        long far = 10L * 86_400_000;
        for (int i = 0; i < 4; i++) {
            assertEquals(List.of(), run(windows, 0, at("A1", 2 + i, far)));
            assertEquals(Map.of("jumps", 1L), counts);
        }
        assertEquals(1, run(windows, 0, at("A1", 9, far)).size(), "five are no mistake");
    }

    @Test
    void endMarksCloseTheLastWindow() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), end("A1", 1000));
        assertEquals(List.of(bySensor(0, 1, 10.0, 0)), run(windows, 0, end("A2", 1000)));
    }

    @Test
    void aSilentStreamHoldsTimeBackUntilTheIdleLimit() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), at("A2", 1, 1000));
        assertEquals(List.of(), pass(windows, IDLE_LIMIT - 1));
        run(windows, 0, at("A1", 2, 61_000));
        assertEquals(List.of(), run(windows, 0));
        assertEquals(2, run(windows, 1).size(), "of both sensors");
    }

    @Test
    void aSilentStreamDoesNotKeepEndedOnesOpenWithoutRecords() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), end("A1", 1000));
        assertEquals(List.of(bySensor(0, 1, 10.0, 0)), pass(windows, IDLE_LIMIT));
    }

    @Test
    void timeInWhichTheJobStoodStillHardlyCounts() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), at("A2", 1, 1000));
        assertEquals(List.of(), run(windows, 100 * IDLE_LIMIT, at("A1", 2, 61_000)));
        assertEquals(List.of(), pass(windows, 2 * STEP));
        run(windows, 0, at("A1", 3, 62_000));
        assertEquals(2, run(windows, STEP).size());
    }

    @Test
    void aClockThatIsSetBackDoesNotMakeTimeRunBack() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), end("A1", 1000));
        run(windows, -100 * IDLE_LIMIT);
        assertEquals(1, pass(windows, IDLE_LIMIT).size());
    }

    @Test
    void silenceIsJudgedWhenAllThatWaitedHasBeenHeard() throws Exception {
        ClockedWindows windows = windows("local_stats");
        run(windows, 0, at("A1", 1, 1000), at("A2", 1, 1000));
        pass(windows, IDLE_LIMIT - STEP);
        assertEquals(
                List.of(), run(windows, STEP, at("A1", 2, 200_000), at("A2", 2, 2000)));
        assertEquals(Map.of(), counts, "A2 is not late");
    }

    @Test
    void aBatchThatIsRunAgainGivesTheSame() throws Exception {
        ClockedWindows windows = windows("merge");
        run(windows, 0, at("A1", 1, 1000), at("A2", 1, 130_000));
        byte[] before = state;
        String[] records = {at("A1", 2, 70_000), at("A1", 3, 140_000), end("A2", 130_000)};
        List<String> first = run(windows, 500, records);
        byte[] after = state;
        state = before;
        assertEquals(first, run(windows, 0, records));
        assertEquals(2, first.size());
        assertArrayEquals(after, state);
    }

    @Test
    void otherStreamsMayBeDeclared() throws Exception {
        run(windows("merge"), 0, at("A1", 1, 1000), at("A2", 1, 61_000));
        ClockedWindows others = windows("merge", "streams", "A2,A3");
        assertEquals(List.of(), run(others, 0, at("A2", 2, 62_000)), "A3 is awaited");
        assertEquals(1, run(others, 0, at("A3", 1, 61_000)).size());
    }

    @Test
    void aStateOfOtherWindowsIsRefused() throws Exception {
        run(windows("merge"), 0, at("A1", 1, 1000));
        for (ClockedWindows other :
                List.of(windows("merge", "window", "30s"), windows("local_stats"))) {
            String message =
                    assertThrows(IllegalArgumentException.class, () -> other.restore(state, nowMs))
                            .getMessage();
            assertEquals("cannot go on with", message.substring(0, 17), message);
        }
    }

    @Test
    void argumentsThatAreWrongAreNamed() {
        Map<String, String> faults =
                Map.of(
                        "streams", ",",
                        "window", "0s",
                        "idle-limit", "soon",
                        "lateness", "1",
                        "max-jump", "0ms");
        faults.forEach(
                (name, value) -> {
                    String message =
                            assertThrows(
                                            IllegalArgumentException.class,
                                            () -> windows("merge", name, value))
                                    .getMessage();
                    assertEquals(
                            "cannot use --" + name,
                            message.substring(0, 13 + name.length()),
                            message);
                });
        assertThrows(IllegalArgumentException.class, () -> windows("median"));
        assertThrows(
                IllegalArgumentException.class, () -> ClockedWindows.of("merge", Map.of()));
    }
}
