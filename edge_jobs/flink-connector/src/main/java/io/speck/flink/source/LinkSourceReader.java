package io.speck.flink.source;

import io.speck.flink.metrics.FlinkMetrics;
import io.speck.flink.metrics.TaskCpuTime;
import io.speck.link.protocol.ReaderState;
import io.speck.link.source.LinkReader;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;

/** Reads a link as Flink asks for it. */
final class LinkSourceReader implements SourceReader<byte[], LinkSplit> {
    private final LinkReader reader;
    private ReaderOutput<byte[]> lastOutput;
    private Consumer<byte[]> output; // to the last one

    /** @param createReader with the metrics that it is to report to */
    LinkSourceReader(
            Function<FlinkMetrics, LinkReader> createReader, SourceReaderMetricGroup metrics) {
        this.reader = createReader.apply(FlinkMetrics.of(metrics));
        TaskCpuTime.register(metrics);
    }

    /**
     * Connects. Who sees the task run may rely on it that messages are kept for it from then on: so
     * this waits for the subscription, but not for ever for a broker that is away.
     */
    @Override
    public void start() {
        reader.start();
    }

    /** Before the start when there is something to restore; else soon after it. */
    @Override
    public void addSplits(List<LinkSplit> splits) {
        splits.forEach(split -> reader.restore(split.state()));
    }

    @Override
    public InputStatus pollNext(ReaderOutput<byte[]> to) {
        if (to != lastOutput) {
            lastOutput = to;
            output = to::collect;
        }
        return reader.poll(output) ? InputStatus.MORE_AVAILABLE : InputStatus.NOTHING_AVAILABLE;
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
        return reader.available();
    }

    @Override
    public List<LinkSplit> snapshotState(long checkpoint) {
        ReaderState state = reader.snapshot(checkpoint);
        return state == null ? List.of() : List.of(new LinkSplit(state));
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
        reader.complete(checkpoint);
    }

    @Override
    public void notifyCheckpointAborted(long checkpoint) {
        reader.abort(checkpoint);
    }

    /** Returns how many checkpoints are under way. */
    int pendingCheckpoints() {
        return reader.pendingCheckpoints();
    }

    @Override
    public void notifyNoMoreSplits() {}

    @Override
    public void close() {
        reader.close();
    }
}
