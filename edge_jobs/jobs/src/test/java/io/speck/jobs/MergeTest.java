package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.Parameters;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class MergeTest {
    private static final Windows WINDOWS =
            Windows.from(
                    Parameters.of("--streams", "A1,B1", "--window", "60s", "--lateness", "90s"));
    private Merge.GlobalWindow function;
    private StatsHarness<Long> harness;

    @BeforeEach
    void open() throws Exception {
        start(null);
    }

    private void start(OperatorSubtaskState restored) throws Exception {
        function = new Merge.GlobalWindow(WINDOWS);
        harness =
                new StatsHarness<>(function, d -> WINDOWS.startOf(d.timeMs), Types.LONG, restored);
    }

    @AfterEach
    void close() throws Exception {
        harness.close();
    }

    private static Detection at(String stream, long id, long timeMs, String type) {
        Detection detection = Records.detection(stream, id, timeMs);
        detection.type = type;
        return detection;
    }

    private static String result(long start, int count, String sites, String types, int revision) {
        return "{\"window_start_ms\":" + start + ",\"window_ms\":60000,\"count\":" + count
                + ",\"mean_speed_mps\":10.0,\"sites\":{" + sites + "},\"types\":{" + types
                + "},\"revision\":" + revision + "}";
    }

    @Test
    void countsOverSitesAndTypes() throws Exception {
        harness.hear(
                at("B1", 1, 500, "truck"),
                at("A1", 1, 1000, "car"),
                at("A1", 2, 2000, "car"),
                at("A1", 3, 61_000, "bus"));
        harness.time(59_999);
        assertEquals(
                List.of(result(0, 3, "\"A\":2,\"B\":1", "\"car\":2,\"truck\":1", 0)),
                harness.results());
        harness.time(119_999);
        assertEquals(List.of(result(60_000, 1, "\"A\":1", "\"bus\":1", 0)), harness.results());
    }

    @Test
    void neverCountsARepeat() throws Exception {
        for (int i = 0; i < 3; i++) {
            harness.hear(at("A1", 1, 1000, "car"), at("A1", 2, 2000, "car"));
            harness.hear(at("B1", 1, 1000, "car"));
        }
        harness.time(59_999);
        assertEquals(
                List.of(result(0, 3, "\"A\":2,\"B\":1", "\"car\":3", 0)), harness.results());
        harness.hear(at("A1", 2, 2000, "car"));
        assertEquals(List.of(), harness.results(), "a late repeat corrects nothing");
        assertEquals(7, function.repeats.getCount());
    }

    @Test
    void lateDetectionsCorrectTheResultOnce() throws Exception {
        harness.hear(at("A1", 1, 1000, "car"));
        harness.time(59_999);
        harness.results();
        harness.hear(at("B1", 9, 3000, "car"), at("B1", 9, 3000, "car"));
        assertEquals(
                List.of(result(0, 2, "\"A\":1,\"B\":1", "\"car\":2", 1)), harness.results());
        assertEquals(1, function.corrections.getCount());
    }

    @Test
    void afterTheLatenessNothingIsKept() throws Exception {
        harness.hear(at("A1", 1, 1000, "car"));
        harness.time(149_999);
        harness.results();
        harness.hear(at("A1", 2, 1000, "car"), at("A1", 1, 1000, "car"));
        assertEquals(List.of(), harness.results());
        assertEquals(2, function.lateDropped.getCount());
        assertEquals(0, harness.keyedStateEntries());
        assertEquals(0, harness.timers());
    }

    @Test
    void idsSurviveARestore() throws Exception {
        harness.hear(at("A1", 1, 1000, "car"), at("A1", 2, 1000, "car"), at("B1", 7, 1, "bus"));
        OperatorSubtaskState saved = harness.snapshot();
        harness.close();

        start(saved);
        harness.hear(at("A1", 2, 1000, "car"), at("A1", 3, 1000, "car"), at("B1", 7, 1, "bus"));
        harness.time(59_999);
        List<String> results = harness.results();
        assertEquals(
                List.of(result(0, 4, "\"A\":3,\"B\":1", "\"bus\":1,\"car\":3", 0)), results);
        assertTrue(function.repeats.getCount() == 2);
    }
}
