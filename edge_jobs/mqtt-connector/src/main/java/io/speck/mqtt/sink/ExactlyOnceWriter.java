package io.speck.mqtt.sink;

import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.connection.Supervisor;
import io.speck.mqtt.protocol.BatchBuilder;
import io.speck.mqtt.protocol.Message;
import io.speck.mqtt.protocol.ProducerEpoch;
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
final class ExactlyOnceWriter implements MqttWriter {
    private static final int MAX_MESSAGES = 1000; // in one committable
    private static final int ENOUGH_BYTES = 256 << 10;

    private final LinkConfig link;
    private final SinkSettings settings;
    private final PacketLimit limit;
    private final String windowKey;
    private final SinkCounters counters;
    private final Counter recordsSent;
    private final ProducerEpoch epoch;
    private final BatchBuilder builder;
    private long number;
    private List<Committable> committables = new ArrayList<>();
    private Committable filling; // the last of them, while there is room in it; null: none
    private int filledBytes;

    /**
     * @param number the last one given in this epoch
     * @param windowKey names the window of the committer, see {@link ResendWindows}
     */
    ExactlyOnceWriter(
            LinkConfig link,
            ProducerEpoch epoch,
            long number,
            SinkSettings settings,
            String windowKey,
            SinkWriterMetricGroup metrics) {
        this.link = link;
        this.epoch = epoch;
        this.number = number;
        this.settings = settings;
        this.builder = new BatchBuilder(settings.batching());
        this.windowKey = windowKey;
        this.limit = new PacketLimit(link);
        this.recordsSent = metrics.getNumRecordsSendCounter();
        this.counters =
                SinkCounters.register(
                        metrics,
                        metrics.getNumBytesSendCounter(), // stays 0: the committer sends
                        metrics.getNumRecordsSendErrorsCounter());
        metrics.gauge(Supervisor.LINK_PROBLEM, limit::problem);
    }

    /**
     * Must be called before the first record: then it is known what the broker takes, if it is
     * there.
     */
    ExactlyOnceWriter start() {
        limit.ask();
        return this;
    }

    @Override
    public void write(byte[] record, Context context) throws IOException {
        if (record.length > settings.maxRecordBytes()) {
            PublishingWriter.leaveOut(record, link, counters);
            return;
        }
        limit.check(epoch, record.length);
        int most = limit.maxPayload(epoch) - Message.MAX_PROPERTY_BYTES;
        if (!builder.hasRoom(record.length, Math.min(settings.maxBatchBytes(), most))) {
            addMessage();
        }
        builder.add(record);
        if (builder.isFull()) {
            addMessage();
        }
        recordsSent.inc();
    }

    /** Gives the records of the next message their numbers. */
    private void addMessage() {
        Message message = builder.build();
        if (filling == null) {
            filling = Committable.forLink(link, epoch, number + 1, List.of());
            filledBytes = 0;
            committables.add(filling);
        }
        number += message.count();
        List<Message> messages = filling.messages().messages();
        messages.add(message);
        filledBytes += message.payload().length;
        if (messages.size() == MAX_MESSAGES || filledBytes >= ENOUGH_BYTES) {
            filling = null;
        }
    }

    @Override
    public void flush(boolean endOfInput) {}

    @Override
    public Collection<Committable> prepareCommit() {
        if (!builder.isEmpty()) {
            addMessage();
        }
        List<Committable> complete = committables;
        committables = new ArrayList<>();
        filling = null;
        List<NumberedMessages> published = ResendWindows.snapshot(windowKey);
        if (published.isEmpty()) {
            return complete;
        }
        if (complete.isEmpty()) {
            return List.of(Committable.forLink(link, epoch, number + 1, published));
        }
        complete.set(0, complete.get(0).withRecent(published));
        return complete;
    }

    @Override
    public List<MqttSink.State> snapshotState(long checkpoint) {
        return List.of(new MqttSink.State(epoch.epoch(), number, true, null));
    }

    @Override
    public void close() {
        limit.close();
    }
}
