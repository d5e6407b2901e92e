package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.mqtt.Parameters;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LocalStatsTest {
    private static final Windows WINDOWS =
            Windows.from(Parameters.of("--streams", "A1", "--window", "60s", "--lateness", "2m"));
    private LocalStats.SensorWindows function;
    private StatsHarness<String> harness;

    @BeforeEach
    void open() throws Exception {
        start(null);
    }

    private void start(OperatorSubtaskState restored) throws Exception {
        function = new LocalStats.SensorWindows(WINDOWS, "A");
        harness = new StatsHarness<>(function, d -> d.sensor, Types.STRING, restored);
    }

    @AfterEach
    void close() throws Exception {
        harness.close();
    }

    private static Detection at(long timeMs, String sensor, double speed) {
        Detection detection = Records.detection("A1", 1, timeMs);
        detection.sensor = sensor;
        detection.speedMps = speed;
        return detection;
    }

    private static String result(
            String sensor, long start, int count, double speed, double occupancy, int revision) {
        return "{\"site\":\"A\",\"sensor\":\"" + sensor + "\",\"window_start_ms\":" + start
                + ",\"window_ms\":60000,\"count\":" + count + ",\"mean_speed_mps\":" + speed
                + ",\"occupancy\":" + occupancy + ",\"revision\":" + revision + "}";
    }

    @Test
    void oneResultForEachSensorAndWindow() throws Exception {
        harness.hear(at(0, "A1-01", 10), at(59_999, "A1-01", 20), at(60_000, "A1-01", 30));
        harness.time(59_998);
        assertEquals(List.of(), harness.results());
        harness.time(59_999);
        // 5 m at 10 m/s and at 20 m/s cover the sensor for 500 ms and 250 ms of 60 s
        assertEquals(List.of(result("A1-01", 0, 2, 15.0, 0.0125, 0)), harness.results());
        harness.hear(at(70_000, "A1-02", 10));
        harness.time(119_999);
        assertEquals(2, harness.results().size());
    }

    @Test
    void occupancyEndsAtOne() throws Exception {
        harness.hear(at(0, "A1-01", 0.01));
        harness.time(59_999);
        assertEquals(List.of(result("A1-01", 0, 1, 0.01, 1.0, 0)), harness.results());
    }

    @Test
    void lateDetectionsCorrectTheResult() throws Exception {
        harness.hear(at(1000, "A1-01", 10));
        harness.time(59_999);
        harness.results();
        harness.hear(at(2000, "A1-01", 20));
        assertEquals(List.of(result("A1-01", 0, 2, 15.0, 0.0125, 1)), harness.results());
        harness.hear(at(3000, "A1-01", 10));
        assertEquals(1, harness.results().size());
        assertEquals(2, function.corrections.getCount());
        harness.time(119_999);
        assertEquals(List.of(), harness.results());
    }

    @Test
    void aLateDetectionOfASensorWithoutResultGivesItsFirst() throws Exception {
        harness.time(59_999);
        harness.hear(at(1000, "A1-01", 10));
        harness.time(119_999);
        assertEquals(1, harness.results().size());
        assertEquals(0, function.corrections.getCount());
    }

    @Test
    void afterTheLatenessNothingIsKept() throws Exception {
        harness.hear(at(1000, "A1-01", 10));
        harness.time(179_998);
        harness.hear(at(1000, "A1-01", 10));
        assertEquals(2, harness.results().size());
        harness.time(179_999);
        harness.hear(at(1000, "A1-01", 10));
        assertEquals(List.of(), harness.results());
        assertEquals(1, function.lateDropped.getCount());
        assertEquals(0, harness.keyedStateEntries());
        assertEquals(0, harness.timers());
    }

    @Test
    void windowsAndRevisionsSurviveARestore() throws Exception {
        harness.hear(at(1000, "A1-01", 10), at(61_000, "A1-01", 10));
        harness.time(59_999);
        harness.results();
        OperatorSubtaskState saved = harness.snapshot();
        harness.close();

        start(saved);
        harness.time(59_999);
        assertEquals(List.of(), harness.results(), "emitted before the restore");
        harness.hear(at(2000, "A1-01", 20), at(62_000, "A1-01", 10));
        assertEquals(List.of(result("A1-01", 0, 2, 15.0, 0.0125, 1)), harness.results());
        harness.time(119_999);
        assertEquals(1, harness.results().size());
    }
}
