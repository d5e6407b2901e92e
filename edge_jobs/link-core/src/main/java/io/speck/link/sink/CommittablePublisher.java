package io.speck.link.sink;

import io.speck.link.metrics.LinkMetrics;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes what a complete checkpoint holds.
 *
 * <p>A commit returns when the broker has taken everything; while the broker is away it waits, and
 * with it the task: Flink gives a commit only a few more attempts, at once, before it fails the
 * job. Committed again after a failure, the same messages go out under the same numbers.
 *
 * <p>Committables restored from a checkpoint may be for a link that was the sink's before. They go
 * there first, over a connection of their own that is closed before the next one is opened: both
 * may have the same client id. In the other delivery modes, where the writer has the sink's
 * connection, this is all there is to do.
 */
public final class CommittablePublisher implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(CommittablePublisher.class);

    private final LinkConfig link;
    private final SinkSettings settings;
    private final SinkCounters counters;
    private final String windowKey;
    private final boolean awaitsResend;
    private final ResendWindow recent;
    private volatile BlockingPublisher ownLink; // null: not needed yet

    /**
     * @param windowKey under which the writer finds what was published, see {@link ResendWindows}
     * @param metrics two publishers at a time may send, each in a thread of its own: they count bytes
     *     together
     * @param awaitsResend whether a commit also waits until the broker has what was published
     *     before the job was restored
     */
    public CommittablePublisher(
            LinkConfig link,
            SinkSettings settings,
            String windowKey,
            boolean awaitsResend,
            LinkMetrics metrics) {
        this.link = link;
        this.settings = settings;
        this.counters = SinkCounters.register(metrics);
        this.windowKey = windowKey;
        this.awaitsResend = awaitsResend;
        this.recent = settings.newResendWindow(counters);
        if (link.delivery() == Delivery.EXACTLY_ONCE) {
            ResendWindows.add(windowKey, recent);
            metrics.gauge("resendStateLeftOut", recent::leftOut);
        }
        metrics.gauge(
                "window", () -> ownLink == null ? link.window() : ownLink.publisher.window());
        metrics.gauge(
                LinkMetrics.LINK_PROBLEM,
                () -> ownLink == null ? "" : ownLink.publisher.problem());
        metrics.gauge(
                "connected", () -> ownLink != null && ownLink.publisher.isConnected() ? 1 : 0);
    }

    /**
     * Publishes what a checkpoint holds, which is complete; returns when the broker has it.
     *
     * @param committables in the order in which they were made
     */
    public void commit(Collection<Committable> committables) throws InterruptedException {
        List<Committable> sameLink = new ArrayList<>(); // in order
        for (Committable committable : committables) {
            if (!sameLink.isEmpty() && !committable.isFor(linkOf(sameLink.get(0)))) {
                publish(sameLink);
                sameLink.clear();
            }
            sameLink.add(committable);
        }
        if (!sameLink.isEmpty()) {
            publish(sameLink);
        }
    }

    @Override
    public void close() {
        ResendWindows.remove(windowKey, recent);
        if (ownLink != null) {
            ownLink.publisher.close();
        }
    }

    private void publish(List<Committable> committables) throws InterruptedException {
        List<SinkMessage> messages =
                committables.stream()
                        .flatMap(committable -> committable.messages().toSinkMessages().stream())
                        .toList();
        Committable first = committables.get(0);
        boolean own = first.isFor(link);
        if (own && link.delivery() == Delivery.EXACTLY_ONCE) {
            if (ownLink == null) { // what it is given first may come from a checkpoint
                ownLink =
                        new BlockingPublisher(link, recent, configuredReaders(), first.recent());
            }
            if (!messages.isEmpty() || awaitsResend) {
                ownLink.publish(messages);
            }
        } else if (!messages.isEmpty()) {
            publishOnce(first, own ? configuredReaders() : LinkStatus.Readers.UNKNOWN, messages);
        }
    }

    private void publishOnce(
            Committable first, LinkStatus.Readers readers, List<SinkMessage> messages)
            throws InterruptedException {
        LinkConfig there = linkOf(first);
        LOG.info("what is left for {} goes there first", there);
        BlockingPublisher once =
                new BlockingPublisher(
                        there, settings.newResendWindow(counters), readers, first.recent());
        try {
            once.publish(messages);
        } finally {
            once.publisher.close();
        }
    }

    private LinkStatus.Readers configuredReaders() {
        return settings.hasReaders() ? LinkStatus.Readers.SOME : LinkStatus.Readers.NONE;
    }

    private LinkConfig linkOf(Committable committable) {
        return new LinkConfig(
                committable.isFor(link) ? link.broker() : committable.broker(),
                committable.topic(),
                committable.clientId(),
                Delivery.EXACTLY_ONCE,
                link.window());
    }

    /** A publisher run by a network thread, so that it also lives between commits. */
    private final class BlockingPublisher {
        private final Publisher publisher;
        private CompletableFuture<Void> published = new CompletableFuture<>(); // of that thread

        BlockingPublisher(
                LinkConfig there,
                ResendWindow window,
                LinkStatus.Readers readers,
                List<NumberedMessages> before) {
            publisher =
                    new Publisher(there, settings, window, readers, counters, null, this::advance);
            publisher.restore(before);
            publisher.start();
        }

        /** Returns when the broker has taken all messages, and that is announced. */
        void publish(List<SinkMessage> messages) throws InterruptedException {
            CompletableFuture<Void> done = new CompletableFuture<>();
            publisher.runByOwner(
                    () -> {
                        published = done;
                        publisher.addAll(messages);
                        advance();
                    });
            try {
                done.get();
            } catch (ExecutionException e) {
                throw new IllegalStateException(e.getCause().getMessage(), e.getCause());
            }
        }

        private void advance() {
            try {
                do {
                    publisher.advance();
                } while (publisher.pendingCount() > 0 && !publisher.wakeAfter(wakeUpCount()));
                if (publisher.announce()) { // which is false while messages are pending
                    published.complete(null);
                }
            } catch (RuntimeException e) { // else the commit would wait for ever
                published.completeExceptionally(e);
            }
        }

        /** New messages are sent a quarter of the window at a time. */
        private int wakeUpCount() {
            int sent = publisher.sentCount();
            return publisher.pendingCount() > sent ? (sent + 3) / 4 : sent;
        }
    }
}
