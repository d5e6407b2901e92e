package io.speck.spark;

import io.speck.link.JobContract;
import io.speck.link.Parameters;
import io.speck.link.metrics.LinkMetrics;
import io.speck.spark.metrics.SparkMetrics;
import io.speck.spark.sink.QuerySink;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * The links of the queries in this JVM, by their checkpoint folders: what programs in Python call,
 * and where a sink is found from one batch to the next.
 */
public final class OpenLinks {
    private static final Map<Path, SparkMetrics> SOURCES = new ConcurrentHashMap<>();
    private static final Map<Path, QuerySink> SINKS = new ConcurrentHashMap<>();
    private static final Map<Path, SparkMetrics> SINK_METRICS = new ConcurrentHashMap<>();

    private OpenLinks() {}

    public static void addSource(Path queryFolder, SparkMetrics metrics) {
        SOURCES.put(queryFolder, metrics);
    }

    public static void removeSource(Path queryFolder, SparkMetrics metrics) {
        SOURCES.remove(queryFolder, metrics);
    }

    /** Returns the sink of a query, opened. */
    public static QuerySink sink(Path queryFolder, JobContract contract) {
        return SINKS.computeIfAbsent(
                queryFolder,
                folder -> {
                    SparkMetrics metrics = new SparkMetrics();
                    QuerySink sink = new QuerySink(folder, contract, metrics);
                    sink.open();
                    SINK_METRICS.put(folder, metrics);
                    return sink;
                });
    }

    /**
     * Opens the sink of a query before its first batch: it sends what a killed broker has forgotten
     * since the job ended.
     *
     * @param location of the query's checkpoint
     * @param options those of the data source
     */
    public static void openSink(String location, Map<String, String> options) {
        String[] arguments =
                options.entrySet().stream()
                        .map(option -> "--" + option.getKey() + "=" + option.getValue())
                        .toArray(String[]::new);
        sink(CheckpointFolder.parse(location), JobContract.parse(Parameters.parse(arguments)));
    }

    /** Closes what a query has left open: Spark does not say when a sink is needed no more. */
    public static void close(String location) {
        QuerySink sink = SINKS.remove(CheckpointFolder.parse(location));
        SINK_METRICS.remove(CheckpointFolder.parse(location));
        if (sink != null) {
            sink.close();
        }
    }

    /**
     * Returns the counts of a query's links, a line {@code source.<name>=<value>} or {@code
     * sink.<name>=<value>} each.
     */
    public static String describe(String location) {
        Path folder = CheckpointFolder.parse(location);
        Map<String, String> all = new TreeMap<>();
        collect("source.", SOURCES.get(folder), all);
        collect("sink.", SINK_METRICS.get(folder), all);
        return all.entrySet().stream()
                .map(each -> each.getKey() + "=" + each.getValue().replace('\n', ' '))
                .collect(Collectors.joining("\n"));
    }

    private static void collect(String prefix, LinkMetrics metrics, Map<String, String> all) {
        if (metrics instanceof SparkMetrics counted) {
            counted.values().forEach((name, value) -> all.put(prefix + name, value));
        }
    }
}
