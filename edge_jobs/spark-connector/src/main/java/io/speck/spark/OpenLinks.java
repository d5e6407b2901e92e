package io.speck.spark;

import io.speck.link.JobContract;
import io.speck.link.Parameters;
import io.speck.spark.files.CheckpointFolder;
import io.speck.spark.metrics.QueryMetrics;
import io.speck.spark.sink.OpenSinks;
import io.speck.spark.sink.Resend;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;

/** What programs in Python call, besides Spark itself; queries are known by their checkpoints. */
public final class OpenLinks {
    private OpenLinks() {}

    /**
     * Begins to open the sink of a query, before its first batch: it sends what a killed broker has
     * forgotten since the job ended.
     *
     * @param location of the query's checkpoint
     * @param options those of the data source
     * @throws IllegalArgumentException if an option is missing or wrong
     */
    public static void openSink(String location, Map<String, String> options) {
        OpenSinks.get(CheckpointFolder.parse(location), parse(options));
    }

    /**
     * Sends what the broker of a query that has ended has forgotten since then; returns when it has
     * all of it.
     *
     * @param location of the query's checkpoint
     * @param options those of the data source
     */
    public static void resend(String location, Map<String, String> options)
            throws IOException, InterruptedException {
        Path queryFolder = CheckpointFolder.parse(location);
        try {
            Resend.run(queryFolder, parse(options));
        } finally {
            QueryMetrics.close(queryFolder);
        }
    }

    /** Closes what a query has left open. */
    public static void close(String location) {
        Path queryFolder = CheckpointFolder.parse(location);
        OpenSinks.close(queryFolder);
        QueryMetrics.close(queryFolder);
    }

    /** Returns the counts of a query's links; see {@link QueryMetrics#describe}. */
    public static String describe(String location) {
        return QueryMetrics.describe(CheckpointFolder.parse(location));
    }

    /** Returns the contract that options hold; others than the contract's are left out. */
    static JobContract parse(Map<String, String> options) {
        String[] arguments =
                options.entrySet().stream()
                        .filter(option -> JobContract.ARGUMENTS.contains(option.getKey()))
                        .map(option -> "--" + option.getKey() + "=" + option.getValue())
                        .toArray(String[]::new);
        return JobContract.parse(Parameters.parse(arguments));
    }
}
