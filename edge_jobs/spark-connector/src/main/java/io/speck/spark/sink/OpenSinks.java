package io.speck.spark.sink;

import io.speck.link.JobContract;
import io.speck.spark.metrics.QueryMetrics;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The sinks of the queries in this JVM, by the queries' checkpoint folders. */
public final class OpenSinks {
    private static final Map<Path, QuerySink> OPEN = new ConcurrentHashMap<>();

    private OpenSinks() {}

    /** Returns the sink of a query, which is opened if it is not open yet. */
    public static QuerySink get(Path queryFolder, JobContract contract) {
        return OPEN.computeIfAbsent(
                queryFolder,
                folder ->
                        new QuerySink(
                                folder,
                                contract,
                                QueryMetrics.open(folder, QueryMetrics.End.SINK)));
    }

    /** Closes the sink of a query, if it is open: Spark does not say when that may be. */
    public static void close(Path queryFolder) {
        QuerySink sink = OPEN.remove(queryFolder);
        if (sink != null) {
            sink.close();
        }
    }
}
