package io.speck.jobs;

import java.io.IOException;
import java.util.SortedMap;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** The results of windows as records: one JSON object each. */
public final class Results {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Results() {}

    /** Returns the record of a sensor's window. */
    public static byte[] ofSensor(
            String site, String sensor, long startMs, Windows windows, Totals window)
            throws IOException {
        ObjectNode json = MAPPER.createObjectNode();
        json.put("site", site);
        json.put("sensor", sensor);
        json.put("window_start_ms", startMs);
        json.put("window_ms", windows.lengthMs());
        json.put("count", window.count);
        json.put("mean_speed_mps", window.meanSpeedMps());
        json.put("occupancy", Math.min(1, window.coveredMs / windows.lengthMs()));
        json.put("revision", window.revision);
        return MAPPER.writeValueAsBytes(json);
    }

    /** Returns the record of a window over all sites. */
    public static byte[] ofAllSites(
            long startMs,
            Windows windows,
            Totals window,
            SortedMap<String, Long> sites,
            SortedMap<String, Long> types)
            throws IOException {
        ObjectNode json = MAPPER.createObjectNode();
        json.put("window_start_ms", startMs);
        json.put("window_ms", windows.lengthMs());
        json.put("count", window.count);
        json.put("mean_speed_mps", window.meanSpeedMps());
        sites.forEach(json.putObject("sites")::put);
        types.forEach(json.putObject("types")::put);
        json.put("revision", window.revision);
        return MAPPER.writeValueAsBytes(json);
    }
}
