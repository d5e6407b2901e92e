package io.speck.spark.windows;

import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a batch gives: results, in an order that depends on its records alone, and counts. */
public final class BatchResults {
    private final List<byte[]> records = new ArrayList<>();
    private final Map<Count, Long> counts = new EnumMap<>(Count.class);

    BatchResults() {}

    void add(byte[] record) {
        records.add(record);
    }

    void count(Count what) {
        counts.merge(what, 1L, Long::sum);
    }

    long get(Count what) {
        return counts.getOrDefault(what, 0L);
    }

    /** Returns the results, each a JSON object. */
    public List<byte[]> records() {
        return records;
    }

    /** Returns what was counted, by name, without what is 0. */
    public Map<String, Long> counts() {
        Map<String, Long> named = new LinkedHashMap<>();
        counts.forEach((what, count) -> named.put(what.columnName(), count));
        return named;
    }
}
