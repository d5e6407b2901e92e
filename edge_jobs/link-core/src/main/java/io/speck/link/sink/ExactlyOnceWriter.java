package io.speck.link.sink;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.BatchBuilder;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import io.speck.link.transport.LinkConfig;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * Numbers records and hands them over at each checkpoint, to be published by {@link CommittablePublisher}
 * when the checkpoint is complete. It has no connection.
 */
final class ExactlyOnceWriter implements LinkWriter {
    private static final int MAX_MESSAGES = 1000; // in one committable
    private static final int ENOUGH_BYTES = 256 << 10;

    private final LinkConfig link;
    private final SinkSettings settings;
    private final PacketLimit limit;
    private final String windowKey;
    private final SinkCounters counters;
    private final LinkCounter recordsSent;
    private final ProducerEpoch epoch;
    private final String stateName;
    private final SentNumber start;
    private final BatchBuilder builder;
    private long number;
    private List<Committable> committables = new ArrayList<>();
    private Committable filling; // the last of them, while there is room in it; null: none
    private int filledBytes;

    /**
     * @param number the last one given in this epoch
     * @param windowKey names the window of the committer, see {@link ResendWindows}, and this
     *     writer, see {@link WriterStarts}
     */
    ExactlyOnceWriter(
            LinkConfig link,
            ProducerEpoch epoch,
            long number,
            SinkSettings settings,
            String windowKey,
            LinkMetrics metrics,
            String stateName) {
        this.link = link;
        this.epoch = epoch;
        this.stateName = stateName;
        this.number = number;
        this.start = SentNumber.of(epoch, number);
        this.settings = settings;
        this.builder = new BatchBuilder(settings.batching());
        this.windowKey = windowKey;
        this.limit = new PacketLimit(link);
        this.recordsSent = metrics.records();
        this.counters = SinkCounters.register(metrics); // bytes stay 0: the committables' publisher sends
        metrics.gauge(LinkMetrics.LINK_PROBLEM, limit::problem);
    }

    /**
     * Must be called before the first record: then it is known what the broker takes, if it is
     * there.
     */
    ExactlyOnceWriter start() {
        WriterStarts.add(windowKey, start);
        limit.ask();
        return this;
    }

    @Override
    public void write(byte[] record) throws IOException {
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
    public void flush() {}

    @Override
    public List<Committable> prepareCommit() {
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
    public List<SinkState> snapshot() {
        return List.of(new SinkState(stateName, epoch.epoch(), number, true, null));
    }

    @Override
    public void close() {
        WriterStarts.remove(windowKey, start);
        limit.close();
    }
}
