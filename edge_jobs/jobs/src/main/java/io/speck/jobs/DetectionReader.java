package io.speck.jobs;

import java.io.IOException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Reads the records of the traffic application: one JSON object a message.
 *
 * <p>Never throws for a bad record: it is malformed when it is no JSON object, and impossible when
 * it is one that no sensor can have meant (a field missing or of the wrong type, a speed of 0 or
 * over 70 m/s, a length of 0 or over 30 m, a time before 0, an id before 1).
 */
public final class DetectionReader {
    static final double MAX_SPEED_MPS = 70;
    static final double MAX_LENGTH_M = 30;

    /** Times past this (some 285 000 years) would overflow the arithmetic of windows. */
    static final long MAX_TIME_MS = 1L << 53;

    private final ObjectMapper mapper =
            new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    /** What a record is. */
    public enum Verdict {
        GOOD,
        MALFORMED,
        IMPOSSIBLE
    }

    /** Judges a record and, when it is good, fills in the detection or end mark. */
    public Verdict read(byte[] record, Detection into) {
        JsonNode json;
        try {
            json = mapper.readTree(record);
        } catch (IOException | RuntimeException e) {
            return Verdict.MALFORMED;
        }
        if (json == null || !json.isObject()) {
            return Verdict.MALFORMED;
        }
        JsonNode end = json.get("end");
        into.end = end != null && end.isBoolean() && end.booleanValue();
        boolean good = readHead(json, into) && (into.end || readBody(json, into));
        return good ? Verdict.GOOD : Verdict.IMPOSSIBLE;
    }

    private static boolean readHead(JsonNode json, Detection into) {
        JsonNode stream = json.get("stream");
        JsonNode time = json.get("time_ms");
        if (!isName(stream) || !isWhole(time)) {
            return false;
        }
        into.stream = stream.textValue();
        into.timeMs = time.longValue();
        return into.timeMs >= 0 && into.timeMs <= MAX_TIME_MS;
    }

    private static boolean readBody(JsonNode json, Detection into) {
        JsonNode id = json.get("id");
        JsonNode sensor = json.get("sensor");
        JsonNode vehicle = json.get("vehicle");
        JsonNode speed = json.get("speed_mps");
        JsonNode length = json.get("length_m");
        JsonNode type = json.get("type");
        if (!isWhole(id) || !isName(sensor) || !isName(vehicle) || !isName(type)) {
            return false;
        }
        if (speed == null || !speed.isNumber() || length == null || !length.isNumber()) {
            return false;
        }
        into.id = id.longValue();
        into.sensor = sensor.textValue();
        into.speedMps = speed.doubleValue();
        into.lengthM = length.doubleValue();
        into.type = type.textValue();
        return into.id >= 1
                && into.speedMps > 0
                && into.speedMps <= MAX_SPEED_MPS
                && into.lengthM > 0
                && into.lengthM <= MAX_LENGTH_M;
    }

    private static boolean isName(JsonNode node) {
        return node != null
                && node.isTextual()
                && !node.textValue().isEmpty()
                && isWritable(node.textValue());
    }

    /** Half a surrogate pair can be read (as an escape) but not be written as UTF-8. */
    private static boolean isWritable(String text) {
        return text.codePoints().noneMatch(c -> c >= 0xD800 && c <= 0xDFFF);
    }

    private static boolean isWhole(JsonNode node) {
        return node != null && node.isIntegralNumber() && node.canConvertToLong();
    }
}
