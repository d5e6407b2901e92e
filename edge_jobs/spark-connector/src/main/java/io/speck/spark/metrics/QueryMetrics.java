package io.speck.spark.metrics;

import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** The counts of the links of all queries in this JVM, by the queries' checkpoint folders. */
public final class QueryMetrics {
    /** One end of a link, as a query sees it. */
    public enum End {
        SOURCE,
        SINK
    }

    private record Key(Path queryFolder, End end) {}

    private static final Map<Key, SparkMetrics> ALL = new ConcurrentHashMap<>();

    private QueryMetrics() {}

    /** Creates the counts of one end, in place of those of an earlier run. */
    public static SparkMetrics open(Path queryFolder, End end) {
        SparkMetrics metrics = new SparkMetrics();
        ALL.put(new Key(queryFolder, end), metrics);
        return metrics;
    }

    /** Forgets what a query has counted. */
    public static void close(Path queryFolder) {
        for (End end : End.values()) {
            ALL.remove(new Key(queryFolder, end));
        }
    }

    /**
     * Returns a line {@code source.<name>=<value>} or {@code sink.<name>=<value>} for each count of
     * a query.
     */
    public static String describe(Path queryFolder) {
        Map<String, String> all = new TreeMap<>();
        for (End end : End.values()) {
            SparkMetrics metrics = ALL.get(new Key(queryFolder, end));
            if (metrics != null) {
                String prefix = end.name().toLowerCase(java.util.Locale.ROOT) + ".";
                metrics.values().forEach((name, value) -> all.put(prefix + name, value));
            }
        }
        return all.entrySet().stream()
                .map(each -> each.getKey() + "=" + each.getValue().replace('\n', ' '))
                .collect(Collectors.joining("\n"));
    }
}
