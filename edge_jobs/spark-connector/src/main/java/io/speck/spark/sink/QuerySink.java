package io.speck.spark.sink;

import io.speck.link.JobContract;
import io.speck.link.sink.BlockingLoop;
import io.speck.link.sink.CommittablePublisher;
import io.speck.link.sink.LinkChooser;
import io.speck.link.sink.LinkWriter;
import io.speck.link.sink.LinkWriters;
import io.speck.spark.files.Durable;
import io.speck.spark.metrics.SparkMetrics;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The sink of a query, which stays open from batch to batch: Spark makes a new writer for each.
 *
 * <p>Under exactly_once the rows of a batch are numbered and stored when it is committed, then they
 * are published, and only then Spark commits the batch. A batch that is run again publishes what
 * its first run has stored. In the other modes rows are published when the batch is committed, and
 * its end waits until the broker has them.
 *
 * <p>It has a thread of its own, in which the core's writer lives: between batches that sends again
 * what a killed broker has forgotten.
 */
public final class QuerySink implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(QuerySink.class);
    private static final int KEPT = 2;

    /** What the thread does for others. */
    @FunctionalInterface
    private interface Task {
        void run() throws IOException, InterruptedException;
    }

    private final JobContract contract;
    private final Path folder;
    private final SparkMetrics metrics;
    private final String key;
    private final BlockingLoop loop = new BlockingLoop();
    private final Thread thread = new Thread(this::live, "speck-sink");
    private final CompletableFuture<Void> end = new CompletableFuture<>();
    private volatile boolean closed;

    // of its thread only
    private LinkWriter writer;
    private CommittablePublisher publisher;
    private long published = -1;
    private Throwable failure; // after it nothing is published any more; null: there was none

    /**
     * Begins to connect, and to publish again what the last batch has stored: a broker that was
     * killed since then may have forgotten it. Batches wait for that.
     *
     * @param queryFolder the query's checkpoint
     */
    public QuerySink(Path queryFolder, JobContract contract, SparkMetrics metrics) {
        this.contract = contract;
        this.folder = queryFolder.resolve("out");
        this.metrics = metrics;
        this.key = queryFolder.toString();
        loop.execute(this::begin);
        thread.setDaemon(true);
        thread.start();
    }

    private void begin() {
        try {
            restore();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (IOException | RuntimeException | Error e) {
            fail(e);
        }
    }

    /** Batches must learn of it: out of memory, for instance, or a class that is missing. */
    private void fail(Throwable why) {
        LOG.error("cannot go on in {}", folder, why);
        failure = failure == null ? why : failure;
    }

    private void restore() throws IOException, InterruptedException {
        long newest = BatchOutput.newest(folder);
        BatchOutput output = BatchOutput.read(folder, newest, contract.port().size());
        LinkWriters writers =
                new LinkWriters(contract.port(), contract.attempt(), contract.settings(), key);
        writer =
                writers.open(
                        LinkChooser.inTurn(),
                        output == null ? List.of() : output.states(),
                        loop,
                        metrics);
        publisher =
                new CommittablePublisher(
                        contract.port(), contract.settings(), key, false, metrics);
        if (output != null) {
            publisher.commit(output.committables());
            published = newest;
        }
    }

    /** Publishes a batch; returns when its brokers have all of it. */
    void commit(long batch, WriterCommitMessage[] rows) {
        await(() -> publish(batch, rows));
    }

    private void publish(long batch, WriterCommitMessage[] rows)
            throws IOException, InterruptedException {
        if (failure != null) {
            throw new IllegalStateException(describe(failure), failure);
        }
        BatchOutput output = BatchOutput.read(folder, batch, contract.port().size());
        if (output == null) {
            for (WriterCommitMessage each : rows) {
                ((RowCollector.Rows) each).forEach(writer::write);
            }
            writer.flush();
            output = new BatchOutput(writer.prepareCommit(), writer.snapshot());
            output.write(folder, batch, contract.port().size());
        }
        if (published != batch) {
            publisher.commit(output.committables());
            published = batch;
        }
        Durable.deleteBelow(folder, batch - KEPT);
    }

    private void live() {
        try {
            while (!closed) {
                runNext();
            }
        } catch (InterruptedException e) {
            LOG.debug("the sink is closed", e);
        } finally {
            end.complete(null);
            if (writer != null) {
                writer.close();
            }
            if (publisher != null) {
                publisher.close();
            }
        }
    }

    private void runNext() throws InterruptedException {
        try {
            loop.runNext();
        } catch (RuntimeException | Error e) { // of a timer
            fail(e);
        }
    }

    /** Lets the thread do something, and waits for it. */
    private void await(Task task) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        loop.execute(
                () -> {
                    try {
                        task.run();
                        done.complete(null);
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                        done.completeExceptionally(e);
                    } catch (IOException | RuntimeException | Error e) {
                        done.completeExceptionally(e);
                    }
                });
        try {
            CompletableFuture.anyOf(done, end).get();
            if (!done.isDone()) {
                throw new IllegalStateException(
                        "cannot publish to %s: its sink is closed".formatted(contract.sink()));
            }
            done.get();
        } catch (InterruptedException e) { // the query is being stopped
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new InterruptedIOException());
        } catch (ExecutionException e) {
            throw new IllegalStateException(
                    "cannot publish to %s: %s"
                            .formatted(contract.sink(), describe(e.getCause())),
                    e.getCause());
        }
    }

    private static String describe(Throwable why) {
        boolean isClear = why instanceof Exception && why.getMessage() != null;
        return isClear ? why.getMessage() : why.toString();
    }

    /** Closes its connections; what it waits for is given up, and published at the next start. */
    @Override
    public void close() {
        closed = true;
        thread.interrupt();
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
