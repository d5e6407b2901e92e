package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.mqtt.Parameters;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.junit.jupiter.api.Test;

/** The records shown in edge_jobs/README.md are those that the jobs read and write. */
class ReadmeTest {
    private static final Pattern BLOCK = Pattern.compile("```json\n(.*?)\n```", Pattern.DOTALL);
    private static final Windows WINDOWS = Windows.from(Parameters.of("--streams", "A1"));

    private static List<String> records() throws IOException {
        List<String> records = new ArrayList<>();
        Matcher matcher = BLOCK.matcher(Files.readString(Path.of("..", "README.md")));
        while (matcher.find()) {
            records.add(matcher.group(1));
        }
        assertEquals(4, records.size());
        return records;
    }

    private static List<String> fields(String record) throws IOException {
        List<String> fields = new ArrayList<>();
        JsonNode json = new ObjectMapper().readTree(record);
        json.fieldNames().forEachRemaining(fields::add);
        return fields;
    }

    @Test
    void detectionAndEndMarkAreGood() throws IOException {
        DetectionReader reader = new DetectionReader();
        for (String record : records().subList(0, 2)) {
            assertEquals(
                    DetectionReader.Verdict.GOOD,
                    reader.read(Records.bytes(record), new Detection()),
                    record);
        }
    }

    @Test
    void resultsHaveTheFieldsShown() throws Exception {
        Detection detection = Records.detection("A1", 1, 1000);
        try (StatsHarness<String> local =
                        new StatsHarness<>(
                                new LocalStats.SensorWindows(WINDOWS, "A"),
                                d -> d.sensor,
                                Types.STRING,
                                null);
                StatsHarness<Long> global =
                        new StatsHarness<>(
                                new Merge.GlobalWindow(WINDOWS), d -> 0L, Types.LONG, null)) {
            local.hear(detection);
            local.time(59_999);
            assertEquals(fields(records().get(2)), fields(local.results().get(0)));
            global.hear(detection);
            global.time(59_999);
            assertEquals(fields(records().get(3)), fields(global.results().get(0)));
        }
    }
}
