package io.speck.mqtt;

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
    private static final int MOST_RECORDS = 1000;
    private static final int ENOUGH_BYTES = 256 << 10;

    private final LinkConfig link;
    private final int mostBytes;
    private final SinkCounters counters;
    private final Counter recordsSent;
    private final Counter bytesSent;
    private final Series series;
    private long number;
    private List<Batch> batches = new ArrayList<>();
    private Batch filling;
    private int filledBytes;

    /** @param number the last one given in this series */
    BatchWriter(
            LinkConfig link,
            Series series,
            long number,
            int mostBytes,
            SinkWriterMetricGroup metrics) {
        this.link = link;
        this.series = series;
        this.number = number;
        this.mostBytes = mostBytes;
        this.recordsSent = metrics.getNumRecordsSendCounter();
        this.bytesSent = metrics.getNumBytesSendCounter();
        this.counters = SinkCounters.of(metrics, metrics.getNumRecordsSendErrorsCounter());
    }

    @Override
    public void write(byte[] payload, Context context) {
        if (payload.length > mostBytes) {
            MqttSinkWriter.leaveOut(payload, link, counters);
            return;
        }
        number++;
        if (filling == null) {
            filling = Batch.to(link, series, number);
            filledBytes = 0;
            batches.add(filling);
        }
        filling.payloads().add(payload);
        filledBytes += payload.length;
        if (filling.payloads().size() == MOST_RECORDS || filledBytes >= ENOUGH_BYTES) {
            filling = null;
        }
        recordsSent.inc();
        bytesSent.inc(payload.length);
    }

    @Override
    public void flush(boolean endOfInput) {}

    @Override
    public Collection<Batch> prepareCommit() {
        List<Batch> complete = batches;
        batches = new ArrayList<>();
        filling = null;
        return complete;
    }

    @Override
    public List<MqttSink.State> snapshotState(long checkpoint) {
        return List.of(new MqttSink.State(series.epoch(), number, true));
    }

    @Override
    public void close() {}
}
