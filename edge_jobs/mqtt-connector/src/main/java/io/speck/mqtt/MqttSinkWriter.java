package io.speck.mqtt;

import java.io.IOException;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes records as they come, or as many of them together as come in a while. When the window
 * is full the task yields to its mailbox; at a checkpoint it waits until the broker has taken
 * everything.
 */
final class MqttSinkWriter implements SpeckWriter {
    private static final Logger LOG = LoggerFactory.getLogger(MqttSinkWriter.class);

    private final LinkConfig link;
    private final SinkSettings settings;
    private final MailboxExecutor mailbox;
    private final SinkCounters counters;
    private final Counter recordsSent;
    private final ResendWindow recent;
    private final Outlet outlet;
    private final Series series;
    private final Packer packer;
    private final Linger linger;
    private long number;

    MqttSinkWriter(
            LinkConfig link,
            Series series,
            SinkSettings settings,
            MailboxExecutor mailbox,
            ProcessingTimeService clock,
            SinkWriterMetricGroup metrics) {
        this.link = link;
        this.series = series;
        this.settings = settings;
        this.mailbox = mailbox;
        this.packer = new Packer(settings.batching());
        this.linger = new Linger(clock, settings.batching().lingerMs(), this::sendWhatIsThere);
        this.recordsSent = metrics.getNumRecordsSendCounter();
        this.counters =
                SinkCounters.of(
                        metrics,
                        metrics.getNumBytesSendCounter(),
                        metrics.getNumRecordsSendErrorsCounter());
        this.outlet =
                new Outlet(
                        link,
                        settings,
                        recent = settings.newResendWindow(counters),
                        settings.hasReaders() ? Bookkeeping.Readers.SOME : Bookkeeping.Readers.NONE,
                        counters,
                        letter -> mailbox.execute(letter::run, "mqtt-sink"),
                        this::progress);
        metrics.gauge("window", outlet::window);
        metrics.gauge("connected", () -> outlet.isConnected() ? 1 : 0);
        metrics.gauge("resendStateLeftOut", recent::leftOut);
        TaskClock.register(metrics);
    }

    /** @param before what was published before the job was restored */
    MqttSinkWriter start(List<Run> before) {
        outlet.restore(before);
        outlet.start();
        return this;
    }

    /** To be called before the first record: what the broker takes is known then, if it is there. */
    MqttSinkWriter awaitReady() {
        outlet.awaitReady();
        return this;
    }

    @Override
    public void write(byte[] payload, Context context) throws InterruptedException, IOException {
        outlet.progress();
        if (payload.length > settings.mostBytes()) {
            leaveOut(payload, link, counters);
            return;
        }
        while (outlet.isFull()) {
            await(Math.max(1, outlet.underWay() / 4));
            outlet.progress();
        }
        if (!outlet.fits(series, payload.length)) {
            outlet.leaveOut(payload.length);
            return;
        }
        recordsSent.inc();
        int most = outlet.mostPayload(series) - Parcel.MOST_PROPERTY_BYTES;
        if (!packer.hasRoom(payload.length, Math.min(settings.mostBatchBytes(), most))) {
            sendMessage();
        }
        packer.add(payload);
        if (packer.isFull()) {
            sendMessage();
        } else if (packer.count() == 1) {
            linger.begin();
        }
    }

    private void sendMessage() {
        linger.end();
        Parcel parcel = packer.take();
        outlet.add(new OutRecord(series, number + 1, parcel));
        number += parcel.count();
    }

    private void sendWhatIsThere() {
        if (!packer.isEmpty()) {
            sendMessage();
        }
        outlet.progress();
    }

    /** Returns when the broker has taken everything, and that this is so. */
    @Override
    public void flush(boolean endOfInput) throws InterruptedException, IOException {
        sendWhatIsThere();
        while (!outlet.announce()) {
            await(outlet.underWay());
            outlet.progress();
        }
    }

    @Override
    public Collection<Batch> prepareCommit() {
        return List.of();
    }

    /** Numbers given from now on may be given again, to other records, after a failure. */
    @Override
    public List<MqttSink.State> snapshotState(long checkpoint) {
        Batch published =
                Batch.to(link, series, number + 1, recent.snapshot(System.nanoTime()));
        return List.of(new MqttSink.State(series.epoch(), number, false, published));
    }

    @Override
    public void close() {
        outlet.close();
    }

    static void leaveOut(byte[] payload, LinkConfig link, SinkCounters counters) {
        LOG.error(
                "cannot publish a record of {} bytes to {}: it is larger than --max-record-bytes;"
                        + " it is left out",
                payload.length,
                link);
        counters.undeliverable().inc();
        counters.failures().inc();
    }

    private void progress() {
        outlet.progress();
    }

    /** Lets the task do other things until some records more are settled, or something happens. */
    private void await(int more) throws InterruptedException {
        if (outlet.wakeAfter(more)) {
            mailbox.yield();
            outlet.dontWake();
        }
    }
}
