package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class DetectionReaderTest {
    private static final String GOOD = Records.json("A1", 17, 28800123, "A1-03", 13.2);
    private final DetectionReader reader = new DetectionReader();

    private DetectionReader.Verdict judge(String record) {
        return reader.read(Records.bytes(record), new Detection());
    }

    @Test
    void readsADetection() {
        Detection detection = new Detection();
        assertEquals(
                DetectionReader.Verdict.GOOD, reader.read(Records.bytes(GOOD), detection));
        assertEquals("#17 of A1 at 28800123", detection.toString());
        assertEquals("A1-03", detection.sensor);
        assertEquals(13.2, detection.speedMps);
        assertEquals(4.5, detection.lengthM);
        assertEquals("car", detection.type);
    }

    @Test
    void readsAnEndMark() {
        Detection detection = new Detection();
        assertEquals(
                DetectionReader.Verdict.GOOD,
                reader.read(Records.bytes(Records.endJson("B2", 99)), detection));
        assertEquals("end of B2 at 99", detection.toString());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", " ", "nonsense", "17,A1,28800123", "{\"id\":17,\"stream\"", "[]", "17", "null",
                "\"x\"", "{} {}", "{\"speed_mps\":NaN}", "\u0000", "{'id':1}"
            })
    void malformed(String record) {
        assertEquals(DetectionReader.Verdict.MALFORMED, judge(record));
    }

    @Test
    void malformedBytes() {
        byte[] notUtf8 = Records.bytes(GOOD);
        notUtf8[notUtf8.length - 4] = (byte) 0xC0;
        assertEquals(
                DetectionReader.Verdict.MALFORMED, reader.read(notUtf8, new Detection()));
        assertEquals(DetectionReader.Verdict.MALFORMED, judge("{\"a\":".repeat(100_000)));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "\"id\":17 -> \"id\":0", "\"id\":17 -> \"id\":1.5", "\"id\":17 -> \"id\":\"17\"",
                "\"id\":17 -> \"id\":99999999999999999999", "\"id\":17 -> \"number\":17",
                "\"A1\" -> \"\"", "\"A1\" -> 1", "\"A1\" -> null", "\"A1\" -> \"\\ud800\"",
                "28800123 -> -1", "28800123 -> \"8:00\"", "28800123 -> 9223372036854775807",
                "13.2 -> 0", "13.2 -> -3", "13.2 -> 70.1", "13.2 -> \"fast\"", "13.2 -> 1e999",
                "13.2 -> true", "4.5 -> 0", "4.5 -> 30.5", "4.5 -> null", "\"car\" -> 7",
                "\"v1\" -> []", "\"A1-03\" -> {}"
            })
    void impossible(String change) {
        String[] parts = change.split(" -> ");
        assertTrue(GOOD.contains(parts[0]), change);
        assertEquals(
                DetectionReader.Verdict.IMPOSSIBLE, judge(GOOD.replace(parts[0], parts[1])));
    }

    @ParameterizedTest
    @ValueSource(strings = {"{}", "{\"end\":true}", "{\"end\":true,\"stream\":\"A1\"}",
        "{\"end\":\"true\",\"stream\":\"A1\",\"time_ms\":5}"})
    void impossibleObjects(String record) {
        assertEquals(DetectionReader.Verdict.IMPOSSIBLE, judge(record));
    }

    @Test
    void limitsAreInclusive() {
        assertEquals(DetectionReader.Verdict.GOOD, judge(GOOD.replace("13.2", "70")));
        assertEquals(DetectionReader.Verdict.GOOD, judge(GOOD.replace("4.5", "30.0")));
        assertEquals(DetectionReader.Verdict.GOOD, judge(GOOD.replace("28800123", "0")));
    }

    @Test
    void neverThrows() {
        Random random = new Random(1);
        byte[] good = Records.bytes(GOOD);
        for (int i = 0; i < 20_000; i++) {
            byte[] record = good.clone();
            for (int n = random.nextInt(6); n >= 0; n--) {
                record[random.nextInt(record.length)] = (byte) random.nextInt(256);
            }
            reader.read(record, new Detection());
        }
    }
}
