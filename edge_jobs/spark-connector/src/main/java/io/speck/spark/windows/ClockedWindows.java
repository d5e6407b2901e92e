package io.speck.spark.windows;

import io.speck.jobs.Windows;
import io.speck.link.Parameters;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;

/** The statistics of a job over windows of event time, for programs in Python. */
public final class ClockedWindows {
    private final Windows windows;
    private final Statistic statistic;

    private ClockedWindows(Windows windows, Statistic statistic) {
        this.windows = windows;
        this.statistic = statistic;
    }

    /**
     * Returns a statistic with its windows.
     *
     * @param statistic {@code local_stats} or {@code merge}
     * @param arguments those of {@link Windows}, without dashes, and {@code site}
     * @throws IllegalArgumentException when an argument is missing or wrong
     */
    public static ClockedWindows of(String statistic, Map<String, String> arguments) {
        Parameters parameters =
                Parameters.parse(
                        arguments.entrySet().stream()
                                .map(each -> "--" + each.getKey() + "=" + each.getValue())
                                .toArray(String[]::new));
        Windows windows = Windows.from(parameters);
        return new ClockedWindows(windows, Statistic.of(statistic, windows, parameters));
    }

    /**
     * Returns the results of records as rows: in {@code value} a result, or null; the other columns
     * are to be summed up, they count what else was seen.
     *
     * @param records rows with a column {@code value}, of bytes
     */
    public Dataset<Row> compute(Dataset<Row> records) {
        return records.selectExpr("spark_partition_id()", "value")
                .mapPartitions(new Numbering(), Encoders.row(Numbering.SCHEMA))
                .groupByKey(new OneGroup(), Encoders.INT())
                .flatMapGroupsWithState(
                        new WindowFunction(windows, statistic),
                        OutputMode.Append(),
                        Encoders.BINARY(),
                        Encoders.row(WindowFunction.schema()),
                        GroupStateTimeout.ProcessingTimeTimeout());
    }

    /**
     * Returns the state before a batch, without Spark.
     *
     * @param bytes the state after the batch before it; null: there is none
     */
    public WindowState restore(byte[] bytes, long atMs) throws IOException {
        return bytes == null
                ? WindowState.begin(windows, statistic, atMs)
                : WindowState.read(bytes, windows, statistic);
    }

    /** The clock is one for all records. */
    private static final class OneGroup implements MapFunction<Row, Integer> {
        private static final long serialVersionUID = 1L;

        @Override
        public Integer call(Row row) {
            return 0;
        }
    }
}
