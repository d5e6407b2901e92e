package io.speck.link.sink;

import io.speck.link.metrics.LinkMetrics;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Publishes what checkpoints hold for one link, and what they hold for former links. */
final class LinkPublisher implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(LinkPublisher.class);

    private final LinkConfig link;
    private final SinkSettings settings;
    private final SinkCounters counters;
    private final String windowKey;
    private final boolean awaitsResend;
    private final ResendWindow recent;
    private volatile BlockingPublisher ownLink; // null: not needed yet

    /**
     * @param windowKey under which the writer finds what was published, see {@link ResendWindows}
     * @param awaitsResend whether a commit also waits until the broker has what was published
     *     before the job was restored
     */
    LinkPublisher(
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

    boolean isFor(Committable committable) {
        return committable.isFor(link);
    }

    /** Publishes what is for former links; returns when their brokers have it. */
    void publishElsewhere(List<Committable> committables) throws InterruptedException {
        List<Committable> sameLink = new ArrayList<>(); // in order
        for (Committable committable : committables) {
            if (!sameLink.isEmpty() && !committable.isFor(linkOf(sameLink.get(0)))) {
                publishOnce(sameLink, LinkStatus.Readers.UNKNOWN);
                sameLink.clear();
            }
            sameLink.add(committable);
        }
        publishOnce(sameLink, LinkStatus.Readers.UNKNOWN);
    }

    /**
     * Begins to publish what is for this link.
     *
     * @return completes when its broker has it
     */
    CompletableFuture<Void> begin(List<Committable> committables) throws InterruptedException {
        if (link.delivery() != Delivery.EXACTLY_ONCE) {
            publishOnce(committables, configuredReaders());
            return CompletableFuture.completedFuture(null);
        }
        List<SinkMessage> messages = messagesOf(committables);
        if (ownLink == null) { // what it is given first may come from a checkpoint
            List<NumberedMessages> before = committables.get(0).recent();
            SinkMessage doubtful = WriterStarts.findDoubtful(windowKey, messages);
            ownLink = new BlockingPublisher(link, recent, configuredReaders(), before, doubtful);
        }
        return messages.isEmpty() && !awaitsResend
                ? CompletableFuture.completedFuture(null)
                : ownLink.publish(messages);
    }

    static void await(CompletableFuture<Void> published) throws InterruptedException {
        try {
            published.get();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e.getCause().getMessage(), e.getCause());
        }
    }

    private static List<SinkMessage> messagesOf(List<Committable> committables) {
        return committables.stream()
                .flatMap(committable -> committable.messages().toSinkMessages().stream())
                .toList();
    }

    @Override
    public void close() {
        ResendWindows.remove(windowKey, recent);
        if (ownLink != null) {
            ownLink.publisher.close();
        }
    }

    private void publishOnce(List<Committable> committables, LinkStatus.Readers readers)
            throws InterruptedException {
        List<SinkMessage> messages = messagesOf(committables);
        if (messages.isEmpty()) {
            return;
        }
        LinkConfig there = linkOf(committables.get(0));
        LOG.info("what is left for {} goes there first", there);
        List<NumberedMessages> before = committables.get(0).recent();
        BlockingPublisher once =
                new BlockingPublisher(
                        there,
                        settings.newResendWindow(counters),
                        readers,
                        before,
                        messages.get(0));
        try {
            await(once.publish(messages));
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

        /**
         * @param before published before the job was restored
         * @param doubtful the first message that may have been sent then, too; null: there is none
         */
        BlockingPublisher(
                LinkConfig there,
                ResendWindow window,
                LinkStatus.Readers readers,
                List<NumberedMessages> before,
                SinkMessage doubtful) {
            publisher =
                    new Publisher(there, settings, window, readers, counters, null, this::advance);
            publisher.restore(before);
            if (doubtful != null) {
                publisher.doubt(doubtful);
            }
            publisher.start();
        }

        /** Completes when the broker has taken all messages, and that is announced. */
        CompletableFuture<Void> publish(List<SinkMessage> messages) {
            CompletableFuture<Void> done = new CompletableFuture<>();
            publisher.runByOwner(
                    () -> {
                        published = done;
                        publisher.addAll(messages);
                        advance();
                    });
            return done;
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
