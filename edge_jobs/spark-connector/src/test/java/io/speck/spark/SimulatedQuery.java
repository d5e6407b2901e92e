package io.speck.spark;

import io.speck.spark.source.LinkScan;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A query that passes rows on, driven as Spark does it, but without Spark. Its log, which Spark
 * keeps on disk, outlives it.
 */
final class SimulatedQuery implements AutoCloseable {
    /** What Spark writes down: the end of each batch, and which batches are committed. */
    static final class Log {
        private final List<String> ends = new ArrayList<>();
        private int committed;

        int committed() {
            return committed;
        }
    }

    /** Steps of a batch, after each of which the job may be killed. */
    enum Step {
        PLANNED,
        LOGGED,
        WRITTEN,
        PUBLISHED,
        COMMITTED
    }

    private final Path folder;
    private final Log log;
    private final Map<String, String> options;
    private final MicroBatchStream source;
    private final Table table;

    SimulatedQuery(Path folder, Log log, Map<String, String> contract) {
        this.folder = folder;
        this.log = log;
        options = new java.util.HashMap<>(contract);
        options.put("checkpointLocation", folder.toString());
        table = new LinkProvider().getTable(LinkScan.SCHEMA, new Transform[0], Map.of());
        source =
                ((SupportsRead) table)
                        .newScanBuilder(new CaseInsensitiveStringMap(options))
                        .build()
                        .toMicroBatchStream(folder.resolve("sources/0").toString());
        OpenLinks.openSink(folder.toString(), contract);
    }

    /** Runs the batch that is due, if there is one, up to a step. */
    boolean run(Step last) throws IOException {
        int batch = log.committed;
        Offset start = batch == 0 ? source.initialOffset() : endOf(batch - 1);
        if (log.ends.size() == batch) {
            Offset end =
                    ((SupportsAdmissionControl) source)
                            .latestOffset(start, ReadLimit.allAvailable());
            if (end.json().equals(start.json()) || last == Step.PLANNED) {
                return false;
            }
            log.ends.add(end.json());
            name("offsets", batch);
            source.commit(start);
        }
        if (last.compareTo(Step.LOGGED) <= 0) {
            return true;
        }
        StreamingWrite write = openWrite();
        WriterCommitMessage[] rows = {copyRows(start, endOf(batch), write, batch)};
        if (last.compareTo(Step.WRITTEN) <= 0) {
            return true;
        }
        write.commit(batch, rows);
        if (last.compareTo(Step.PUBLISHED) > 0) {
            log.committed++;
            name("commits", batch);
        }
        return true;
    }

    /** Spark's log on disk, as far as sources look at it: names alone. */
    private void name(String log, int batch) throws IOException {
        Path file = folder.resolve(log).resolve(Integer.toString(batch));
        Files.createDirectories(file.getParent());
        Files.writeString(file.resolveSibling("." + batch + ".crc"), "");
        Files.writeString(file, "");
    }

    private Offset endOf(int batch) {
        return source.deserializeOffset(log.ends.get(batch));
    }

    private WriterCommitMessage copyRows(Offset start, Offset end, StreamingWrite write, int batch)
            throws IOException {
        DataWriter<InternalRow> writer =
                write.createStreamingWriterFactory(null).createWriter(0, 0, batch);
        for (InputPartition partition : source.planInputPartitions(start, end)) {
            try (PartitionReader<InternalRow> reader =
                    source.createReaderFactory().createReader(partition)) {
                while (reader.next()) {
                    writer.write(reader.get());
                }
            }
        }
        return writer.commit();
    }

    private StreamingWrite openWrite() {
        LogicalWriteInfo info =
                new LogicalWriteInfo() {
                    @Override
                    public CaseInsensitiveStringMap options() {
                        return new CaseInsensitiveStringMap(options);
                    }

                    @Override
                    public String queryId() {
                        return "query";
                    }

                    @Override
                    public StructType schema() {
                        return LinkScan.SCHEMA;
                    }
                };
        return ((SupportsWrite) table).newWriteBuilder(info).build().toStreaming();
    }

    @Override
    public void close() {
        source.stop();
        OpenLinks.close(folder.toString());
    }
}
