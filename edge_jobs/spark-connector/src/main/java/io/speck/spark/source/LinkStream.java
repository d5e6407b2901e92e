package io.speck.spark.source;

import io.speck.link.JobContract;
import io.speck.link.protocol.ReaderState;
import io.speck.link.source.LinkReader;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.spark.files.Durable;
import io.speck.spark.metrics.QueryMetrics;
import io.speck.spark.metrics.SparkMetrics;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads a link in batches.
 *
 * <p>What there is when a batch is planned becomes a segment of the spool, and the batch reads that
 * segment. A batch takes the place of a checkpoint: when Spark plans the one after it, it is
 * complete, and what it holds is acknowledged at the broker and announced. (Spark's own {@code
 * commit} comes no sooner, and not for the last batch of an input that has ended.) At a stop the
 * last batch is complete if Spark has committed it. So no more is read in one batch than the link's
 * window lets through unacknowledged.
 *
 * <p>All methods are called by the query's thread.
 */
final class LinkStream
        implements MicroBatchStream, SupportsAdmissionControl, ReportsSourceMetrics {
    private static final Logger LOG = LoggerFactory.getLogger(LinkStream.class);
    private static final int MAX_RECORDS = 200_000;
    private static final long MAX_BYTES = 32L << 20;

    private final JobContract contract;
    private final SparkMetrics metrics;
    private final Path folder;
    private final Path queryFolder;
    private final Spool spool;
    private LinkReader reader; // null: nothing was to be read yet
    private long planned; // the end of the last batch that was given its segments

    /** @param folder of this source in the query's checkpoint */
    LinkStream(JobContract contract, Path folder) {
        this.contract = contract;
        this.folder = folder;
        try {
            this.spool = Spool.open(folder.resolve("spool"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        this.queryFolder = folder.getParent().getParent(); // this one is sources/<n> in it
        this.metrics = QueryMetrics.open(queryFolder, QueryMetrics.End.SOURCE);
    }

    @Override
    public Offset initialOffset() {
        return SegmentNumber.NONE;
    }

    @Override
    public Offset deserializeOffset(String json) {
        return SegmentNumber.parse(json);
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("cannot tell what is new without what is known");
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return ReadLimit.allAvailable();
    }

    /** @param start the end of the last batch, which is complete */
    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        long through = ((SegmentNumber) start).number();
        try {
            if (through > spool.last()) {
                throw new IllegalStateException(
                        "cannot go on in %s: the spool ends before the batches that were run; the"
                                        .formatted(folder)
                                + " folder is not whole");
            }
            if (reader == null) {
                open();
            }
            reader.complete(through);
            if (spool.last() == through) {
                take();
            }
            // one at a time: what was a batch is the same batch again
            return new SegmentNumber(Math.min(spool.last(), through + 1));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void open() throws IOException {
        LinkReader opened =
                new LinkReader(
                        widen(contract.source()), contract.handOver(), contract.until(), metrics);
        opened.restore(spool.newestState());
        opened.start();
        reader = opened;
    }

    /**
     * The window bounds what may be unacknowledged, which in a log is nothing, and what waits in
     * memory: here, what comes between two batches.
     */
    private static LinkConfig widen(LinkConfig link) {
        return Transports.of(link.broker()).keepsLogs()
                ? new LinkConfig(
                        link.broker(),
                        link.topic(),
                        link.clientId(),
                        link.delivery(),
                        LinkConfig.MAX_WINDOW)
                : link;
    }

    /** Makes a segment of what is there; if that is no record, it may still be a mark. */
    private void take() throws IOException {
        List<byte[]> records = new ArrayList<>();
        long[] bytes = {0};
        boolean more = true;
        while (more && records.size() < MAX_RECORDS && bytes[0] < MAX_BYTES) {
            more =
                    reader.poll(
                            record -> {
                                records.add(record);
                                bytes[0] += record.length;
                            });
        }
        long segment = spool.last() + (records.isEmpty() ? 0 : 1);
        ReaderState state = reader.snapshot(segment);
        if (records.isEmpty()) {
            reader.complete(segment);
        } else {
            spool.add(state, records);
        }
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        long first = ((SegmentNumber) start).number() + 1;
        long last = ((SegmentNumber) end).number();
        planned = Math.max(planned, last);
        return new InputPartition[] {new SegmentRange(spool.folder().toString(), first, last)};
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new SegmentRange.Factory();
    }

    @Override
    public void commit(Offset end) {
        try {
            spool.forgetBelow(((SegmentNumber) end).number());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        return metrics.values();
    }

    /**
     * No batch is planned any more, which would say that the last one is complete. If Spark has
     * committed it, it is, and whoever reads the link next does not get its records again.
     */
    @Override
    public void stop() {
        if (reader == null) {
            return;
        }
        try {
            if (hasCommittedAll()) {
                reader.complete(planned);
            }
        } catch (IOException e) {
            LOG.warn("cannot see whether the last batch of {} is complete", contract.source(), e);
        } finally {
            reader.close();
        }
    }

    /** Whether the last batch of Spark's log is committed. */
    private boolean hasCommittedAll() throws IOException {
        long logged = Durable.newest(queryFolder.resolve("offsets"));
        return logged >= 0 && logged == Durable.newest(queryFolder.resolve("commits"));
    }
}
