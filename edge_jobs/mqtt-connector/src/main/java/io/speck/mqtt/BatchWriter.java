package io.speck.mqtt;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;

/**
 * Numbers records and hands them over at each checkpoint, to be published by {@link MqttCommitter}
 * when the checkpoint is complete. It has no connection.
 */
final class BatchWriter implements SpeckWriter {
    private static final int MOST_MESSAGES = 1000;
    private static final int ENOUGH_BYTES = 256 << 10;

    private final LinkConfig link;
    private final SinkSettings settings;
    private final PacketLimit limit;
    private final String window;
    private final SinkCounters counters;
    private final Counter recordsSent;
    private final Series series;
    private final Packer packer;
    private long number;
    private List<Batch> batches = new ArrayList<>();
    private Batch filling;
    private int filledBytes;

    /**
     * @param number the last one given in this series
     * @param window where the committer leaves what it has published, see {@link Windows}
     */
    BatchWriter(
            LinkConfig link,
            Series series,
            long number,
            SinkSettings settings,
            String window,
            SinkWriterMetricGroup metrics) {
        this.link = link;
        this.series = series;
        this.number = number;
        this.settings = settings;
        this.packer = new Packer(settings.batching());
        this.window = window;
        this.limit = new PacketLimit(link);
        this.recordsSent = metrics.getNumRecordsSendCounter();
        this.counters =
                SinkCounters.of(
                        metrics,
                        metrics.getNumBytesSendCounter(), // stays 0: the committer sends
                        metrics.getNumRecordsSendErrorsCounter());
    }

    /** To be called before the first record: what the broker takes is known then, if it is there. */
    BatchWriter start() {
        limit.ask();
        return this;
    }

    @Override
    public void write(byte[] payload, Context context) throws IOException {
        if (payload.length > settings.mostBytes()) {
            MqttSinkWriter.leaveOut(payload, link, counters);
            return;
        }
        limit.check(series, payload.length);
        int most = limit.mostPayload(series) - Parcel.MOST_PROPERTY_BYTES;
        if (!packer.hasRoom(payload.length, Math.min(settings.mostBatchBytes(), most))) {
            close(packer);
        }
        packer.add(payload);
        if (packer.isFull()) {
            close(packer);
        }
        recordsSent.inc();
    }

    /** Gives the records of the next message their numbers. */
    private void close(Packer message) {
        Parcel parcel = message.take();
        if (filling == null) {
            filling = Batch.to(link, series, number + 1, List.of());
            filledBytes = 0;
            batches.add(filling);
        }
        number += parcel.count();
        filling.run().parcels().add(parcel);
        filledBytes += parcel.payload().length;
        if (filling.run().parcels().size() == MOST_MESSAGES || filledBytes >= ENOUGH_BYTES) {
            filling = null;
        }
    }

    @Override
    public void flush(boolean endOfInput) {}

    @Override
    public Collection<Batch> prepareCommit() {
        if (!packer.isEmpty()) {
            close(packer);
        }
        List<Batch> complete = batches;
        batches = new ArrayList<>();
        filling = null;
        List<Run> published = Windows.snapshot(window);
        if (published.isEmpty()) {
            return complete;
        }
        if (complete.isEmpty()) {
            return List.of(Batch.to(link, series, number + 1, published));
        }
        complete.set(0, complete.get(0).after(published));
        return complete;
    }

    @Override
    public List<MqttSink.State> snapshotState(long checkpoint) {
        return List.of(new MqttSink.State(series.epoch(), number, true, null));
    }

    @Override
    public void close() {
        limit.close();
    }
}
