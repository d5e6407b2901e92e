package io.speck.mqtt;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.ThreadSafeSimpleCounter;
import org.apache.flink.metrics.groups.SinkCommitterMetricGroup;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes what a complete checkpoint holds.
 *
 * <p>A commit returns when the broker has taken everything; while the broker is away it waits, and
 * with it the task: Flink gives a commit only a few more attempts, at once, before it fails the
 * job. Committed again after a failure, the same records go out under the same numbers.
 *
 * <p>Batches restored from a checkpoint may be for a link that was the sink's before. They go there
 * first, over a connection of their own that is closed before the next one is opened: both may
 * have the same client id. In the other delivery modes, where the writer has the sink's connection,
 * this is all there is to do.
 */
final class MqttCommitter implements Committer<Batch> {
    private static final Logger LOG = LoggerFactory.getLogger(MqttCommitter.class);

    private final LinkConfig link;
    private final SinkSettings settings;
    private final SinkCounters counters;
    private final String key;
    private final ResendWindow recent;
    private volatile Line line; // to the sink's link; null: not needed yet

    /** @param key where it leaves what it has published, see {@link Windows} */
    MqttCommitter(
            LinkConfig link,
            SinkSettings settings,
            String key,
            SinkCommitterMetricGroup metrics) {
        this.link = link;
        this.settings = settings;
        // two lines at a time may send, each in a thread of its own
        Counter bytesSent = metrics.counter("numBytesSend", new ThreadSafeSimpleCounter());
        this.counters = SinkCounters.of(metrics, bytesSent, metrics.counter("recordsFailed"));
        this.key = key;
        this.recent = settings.newResendWindow(counters);
        if (link.delivery() == Delivery.EXACTLY_ONCE) {
            Windows.open(key, recent);
            metrics.gauge("resendStateLeftOut", recent::leftOut);
        }
        metrics.gauge("window", () -> line == null ? link.window() : line.outlet.window());
        metrics.gauge("connected", () -> line != null && line.outlet.isConnected() ? 1 : 0);
    }

    @Override
    public void commit(Collection<CommitRequest<Batch>> requests) throws InterruptedException {
        List<Batch> run = new ArrayList<>(); // batches of one link, in order
        for (CommitRequest<Batch> request : requests) {
            Batch batch = request.getCommittable();
            if (!run.isEmpty() && !batch.isFor(linkOf(run.get(0)))) {
                publish(run);
                run.clear();
            }
            run.add(batch);
        }
        if (!run.isEmpty()) {
            publish(run);
        }
    }

    @Override
    public void close() {
        Windows.close(key, recent);
        if (line != null) {
            line.outlet.close();
        }
    }

    private void publish(List<Batch> batches) throws InterruptedException {
        List<OutRecord> records =
                batches.stream().flatMap(batch -> batch.run().records().stream()).toList();
        boolean own = batches.get(0).isFor(link);
        if (own && link.delivery() == Delivery.EXACTLY_ONCE) {
            if (line == null) { // what it is given first may come from a checkpoint
                line = new Line(link, recent, readers(), batches.get(0).before());
            }
            if (!records.isEmpty()) {
                line.publish(records);
            }
            return;
        }
        if (records.isEmpty()) {
            return;
        }
        LinkConfig there = linkOf(batches.get(0));
        LOG.info("what is left for {} goes there first", there);
        Line passing =
                new Line(
                        there,
                        settings.newResendWindow(counters),
                        own ? readers() : Bookkeeping.Readers.NOT_KNOWN,
                        batches.get(0).before());
        try {
            passing.publish(records);
        } finally {
            passing.outlet.close();
        }
    }

    private Bookkeeping.Readers readers() {
        return settings.hasReaders() ? Bookkeeping.Readers.SOME : Bookkeeping.Readers.NONE;
    }

    private LinkConfig linkOf(Batch batch) {
        return new LinkConfig(
                batch.broker(),
                batch.topic(),
                batch.clientId(),
                Delivery.EXACTLY_ONCE,
                link.window());
    }

    /** An outlet driven by a network thread, so that it also lives between commits. */
    private final class Line {
        private final Outlet outlet;
        private CompletableFuture<Void> published = new CompletableFuture<>(); // of that thread

        Line(
                LinkConfig to,
                ResendWindow window,
                Bookkeeping.Readers readers,
                List<Run> before) {
            outlet = new Outlet(to, settings, window, readers, counters, null, this::step);
            outlet.restore(before);
            outlet.start();
        }

        /** Returns when the broker has taken all, and that this is so. */
        void publish(List<OutRecord> records) throws InterruptedException {
            CompletableFuture<Void> done = new CompletableFuture<>();
            outlet.turn(
                    () -> {
                        published = done;
                        outlet.addAll(records);
                        step();
                    });
            try {
                done.get();
            } catch (ExecutionException e) {
                throw new IllegalStateException(e.getCause().getMessage(), e.getCause());
            }
        }

        private void step() {
            try {
                do {
                    outlet.progress();
                } while (outlet.pending() > 0 && !outlet.wakeAfter(enough()));
                if (outlet.announce()) { // which is false while records are pending
                    published.complete(null);
                }
            } catch (RuntimeException e) { // else the commit would wait for ever
                published.completeExceptionally(e);
            }
        }

        /** New ones are sent a quarter of the window at a time. */
        private int enough() {
            int underWay = outlet.underWay();
            return outlet.pending() > underWay ? (underWay + 3) / 4 : underWay;
        }
    }
}
