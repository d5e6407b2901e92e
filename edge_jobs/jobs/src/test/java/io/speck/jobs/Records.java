package io.speck.jobs;

import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** Records of the traffic application for tests. */
final class Records {
    private Records() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] record) {
        return new String(record, StandardCharsets.UTF_8);
    }

    static String json(String stream, long id, long timeMs, String sensor, double speed) {
        return String.format(
                Locale.ROOT,
                "{\"id\":%d,\"stream\":\"%s\",\"time_ms\":%d,\"sensor\":\"%s\",\"vehicle\":\"v1\","
                        + "\"speed_mps\":%s,\"length_m\":4.5,\"type\":\"car\"}",
                id,
                stream,
                timeMs,
                sensor,
                speed);
    }

    static String endJson(String stream, long timeMs) {
        return "{\"end\":true,\"stream\":\"" + stream + "\",\"time_ms\":" + timeMs + "}";
    }

    static Detection detection(String stream, long id, long timeMs) {
        Detection detection = new Detection();
        detection.stream = stream;
        detection.id = id;
        detection.timeMs = timeMs;
        detection.sensor = stream + "-01";
        detection.speedMps = 10;
        detection.lengthM = 5;
        detection.type = "car";
        return detection;
    }

    static Detection end(String stream, long timeMs) {
        Detection detection = new Detection();
        detection.stream = stream;
        detection.timeMs = timeMs;
        detection.end = true;
        return detection;
    }
}
