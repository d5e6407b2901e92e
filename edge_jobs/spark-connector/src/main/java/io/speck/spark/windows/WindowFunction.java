package io.speck.spark.windows;

import io.speck.jobs.Windows;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * {@link WindowState} as Spark's state: one group, which is called in each batch with records, and
 * when it is time to look for streams that have fallen silent.
 */
final class WindowFunction
        implements FlatMapGroupsWithStateFunction<Integer, Row, byte[], Row> {
    private static final long serialVersionUID = 1L;
    private static final long MAX_PAUSE_MS = 10_000;
    private static final Comparator<Row> BY_POSITION =
            Comparator.<Row>comparingInt(row -> row.getInt(0))
                    .thenComparingLong(row -> row.getLong(1));

    private final Windows windows;
    private final Statistic statistic;

    WindowFunction(Windows windows, Statistic statistic) {
        this.windows = windows;
        this.statistic = statistic;
    }

    /** Results in {@code value}; and rows without one, which hold what was counted. */
    static StructType schema() {
        StructType schema = new StructType().add("value", DataTypes.BinaryType, true);
        for (Count each : Count.values()) {
            schema = schema.add(each.columnName(), DataTypes.LongType, false);
        }
        return schema;
    }

    @Override
    public Iterator<Row> call(Integer group, Iterator<Row> rows, GroupState<byte[]> state)
            throws IOException {
        long atMs = state.getCurrentProcessingTimeMs();
        WindowState known =
                state.exists()
                        ? WindowState.read(state.get(), windows, statistic)
                        : WindowState.begin(windows, statistic, atMs);
        BatchResults batch = known.run(inOrder(rows), atMs);
        state.update(known.toBytes());
        state.setTimeoutDuration(Math.max(1, Math.min(MAX_PAUSE_MS, windows.idleLimitMs() / 8)));
        return toRows(batch).iterator();
    }

    private static List<byte[]> inOrder(Iterator<Row> rows) {
        List<Row> all = new ArrayList<>();
        rows.forEachRemaining(all::add);
        all.sort(BY_POSITION);
        List<byte[]> records = new ArrayList<>(all.size());
        all.forEach(row -> records.add(row.getAs(2)));
        return records;
    }

    private static List<Row> toRows(BatchResults batch) {
        List<Row> rows = new ArrayList<>();
        for (byte[] record : batch.records()) {
            rows.add(toRow(record, new BatchResults()));
        }
        rows.add(toRow(null, batch));
        return rows;
    }

    private static Row toRow(byte[] record, BatchResults counted) {
        Object[] fields = new Object[1 + Count.values().length];
        fields[0] = record;
        for (Count each : Count.values()) {
            fields[1 + each.ordinal()] = counted.get(each);
        }
        return RowFactory.create(fields);
    }
}
