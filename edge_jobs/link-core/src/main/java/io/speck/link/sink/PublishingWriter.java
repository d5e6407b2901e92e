package io.speck.link.sink;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.BatchBuilder;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.LinkConfig;
import java.io.IOException;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes records as they come, or as many of them together as come in a while: the writer of
 * at_most_once and at_least_once. When the window is full the task does other things; at a
 * checkpoint it waits until the broker has taken everything.
 */
final class PublishingWriter implements LinkWriter {
    private static final Logger LOG = LoggerFactory.getLogger(PublishingWriter.class);

    private final LinkConfig link;
    private final SinkSettings settings;
    private final TaskLoop loop;
    private final SinkCounters counters;
    private final LinkCounter recordsSent;
    private final ResendWindow recent;
    private final Publisher publisher;
    private final ProducerEpoch epoch;
    private final String stateName;
    private final BatchBuilder builder;
    private final LingerTimer linger;
    private long number;

    PublishingWriter(
            LinkConfig link,
            ProducerEpoch epoch,
            SinkSettings settings,
            TaskLoop loop,
            LinkMetrics metrics,
            String stateName) {
        this.link = link;
        this.epoch = epoch;
        this.stateName = stateName;
        this.settings = settings;
        this.loop = loop;
        this.builder = new BatchBuilder(settings.batching());
        this.linger = new LingerTimer(loop, settings.batching().lingerMs(), this::sendIncomplete);
        this.recordsSent = metrics.records();
        this.counters = SinkCounters.register(metrics);
        this.recent = settings.newResendWindow(counters);
        this.publisher =
                new Publisher(
                        link,
                        settings,
                        recent,
                        settings.hasReaders() ? LinkStatus.Readers.SOME : LinkStatus.Readers.NONE,
                        counters,
                        loop::execute,
                        this::advance);
        metrics.gauge("window", publisher::window);
        metrics.gauge("connected", () -> publisher.isConnected() ? 1 : 0);
        metrics.gauge(LinkMetrics.LINK_PROBLEM, publisher::problem);
        metrics.gauge("resendStateLeftOut", recent::leftOut);
    }

    /** @param published before the job was restored */
    PublishingWriter start(List<NumberedMessages> published) {
        publisher.restore(published);
        publisher.start();
        return this;
    }

    /**
     * Must be called before the first record: then it is known what the broker takes, if it is
     * there.
     */
    PublishingWriter awaitReady() {
        publisher.awaitReady();
        return this;
    }

    @Override
    public void write(byte[] record) throws InterruptedException, IOException {
        publisher.advance();
        if (record.length > settings.maxRecordBytes()) {
            leaveOut(record, link, counters);
            return;
        }
        while (publisher.isFull()) {
            await(Math.max(1, publisher.sentCount() / 4));
            publisher.advance();
        }
        int maxPayload = publisher.maxPayload(epoch);
        if (record.length > maxPayload) {
            publisher.leaveOut(record.length);
            return;
        }
        recordsSent.inc();
        int most = maxPayload - Message.MAX_PROPERTY_BYTES;
        if (!builder.hasRoom(record.length, Math.min(settings.maxBatchBytes(), most))) {
            sendMessage();
        }
        builder.add(record);
        if (builder.isFull()) {
            sendMessage();
        } else if (builder.count() == 1) {
            linger.start();
        }
    }

    private void sendMessage() {
        linger.cancel();
        Message message = builder.build();
        publisher.add(new SinkMessage(epoch, number + 1, message));
        number += message.count();
    }

    private void sendIncomplete() {
        if (!builder.isEmpty()) {
            sendMessage();
        }
        publisher.advance();
    }

    /** Returns when the broker has taken everything, and that is announced. */
    @Override
    public void flush() throws InterruptedException, IOException {
        sendIncomplete();
        while (!publisher.announce()) {
            await(publisher.sentCount());
            publisher.advance();
        }
    }

    @Override
    public List<Committable> prepareCommit() {
        return List.of();
    }

    /** Numbers given from now on may be given again, to other records, after a failure. */
    @Override
    public List<SinkState> snapshot() {
        Committable published =
                Committable.forLink(
                        link, epoch, number + 1, recent.snapshot(System.nanoTime()));
        return List.of(new SinkState(stateName, epoch.epoch(), number, false, published));
    }

    @Override
    public void close() {
        publisher.close();
    }

    static void leaveOut(byte[] record, LinkConfig link, SinkCounters counters) {
        LOG.error(
                "cannot publish a record of {} bytes to {}: it is larger than --max-record-bytes;"
                        + " it is left out",
                record.length,
                link);
        counters.recordsUndeliverable().inc();
        counters.failures().inc();
    }

    private void advance() {
        publisher.advance();
    }

    /** Lets the task do other things until some messages more are settled, or something happens. */
    private void await(int more) throws InterruptedException {
        if (publisher.wakeAfter(more)) {
            loop.runNext();
            publisher.cancelWakeUp();
        }
    }
}
