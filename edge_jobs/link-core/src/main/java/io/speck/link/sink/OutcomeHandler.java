package io.speck.link.sink;

import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.WriterConnection;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Decides what becomes of a publisher's messages once the broker has answered. Not thread-safe. */
final class OutcomeHandler {
    private static final Logger LOG = LoggerFactory.getLogger(OutcomeHandler.class);
    private static final String TOO_LARGE =
            "it is larger than the broker takes";

    private final LinkConfig link;
    private final SinkCounters counters;
    private final SendQueue queue;
    private final ResendWindow recent;
    private final RefusalRetry retry;
    private final LinkStatus status;
    private final EndingMessage ending;
    private WriterConnection splitOver; // reported to take one record at a time only
    private IllegalStateException fault; // after which nothing goes on
    private volatile String refusal; // what the broker says to what is held; null: it takes all

    OutcomeHandler(
            LinkConfig link,
            SinkCounters counters,
            SendQueue queue,
            ResendWindow recent,
            RefusalRetry retry,
            LinkStatus status,
            EndingMessage ending) {
        this.link = link;
        this.counters = counters;
        this.queue = queue;
        this.recent = recent;
        this.retry = retry;
        this.status = status;
        this.ending = ending;
    }

    /** Returns why the broker takes no records; null: it does. Called by any thread. */
    String refusal() {
        return refusal;
    }

    /** Throws again what has ended the publisher, if anything has. */
    void rethrowFault() {
        if (fault != null) {
            throw fault;
        }
    }

    /**
     * Handles the outcomes of what was sent over a connection.
     *
     * @return how many there were
     */
    int handleAll(WriterConnection connection) {
        long now = System.nanoTime();
        int handled = 0;
        SinkMessage message;
        while ((message = queue.firstSent()) != null && message.outcome() != Outcome.UNDER_WAY) {
            boolean isFirstAnswer = !message.kept;
            switch (message.outcome()) {
                case CUT_OFF -> {
                    return handled; // and so are all behind it
                }
                case TOO_LARGE -> handleTooLarge(message, connection, message.problem());
                case REFUSED -> refuse(message, message.problem());
                case UNREAD -> handleUnread(message, connection, now);
                case UNDELIVERABLE -> giveUp(message, connection, message.problem());
                default -> {
                    retry.noteRead();
                    accept(message, connection, now);
                }
            }
            if (isFirstAnswer) {
                ending.noteAnswer();
            }
            queue.removeFirstSent();
            handled++;
        }
        recent.prune(now);
        return handled;
    }

    /** The broker says that it has a message: it need not be sent. */
    void confirm(SinkMessage message, WriterConnection connection) {
        counters.recordsConfirmed().inc(message.count());
        retry.noteRead();
        accept(message, connection, System.nanoTime());
    }

    private void accept(SinkMessage message, WriterConnection connection, long now) {
        queue.settle(message);
        if (retry.accept(queue.hasRefused())) {
            LOG.info("{} takes records again", link);
        }
        if (refusal != null && !queue.hasRefused()) {
            refusal = null;
        }
        if (link.delivery().isAcknowledged() && connection.isNumbered()) {
            recent.add(message, now);
        }
    }

    private void handleUnread(SinkMessage message, WriterConnection connection, long now) {
        // confirmed: taken at an earlier attempt, by us or by the incarnation before; a reader had
        // it in store, and all before it in its epoch
        if (status.readers() == LinkStatus.Readers.NONE
                || message.isCoveredBy(status.confirmedRecords(connection))) {
            retry.noteRead();
            accept(message, connection, now);
        } else if (retry.noteUnread(now) && status.readers() == LinkStatus.Readers.UNKNOWN) {
            LOG.warn("nobody reads {} any more: record {} is given up", link, message.number());
            counters.recordsUnread().inc(message.count());
            accept(message, connection, now); // and the rest need not wait for as long
        } else {
            refuse(message, "nobody has subscribed to it");
        }
    }

    private void refuse(SinkMessage message, String problem) {
        if (retry.hold()) {
            LOG.warn("{} does not take record {}: {}; holding", link, message.number(), problem);
        }
        refusal = "cannot write to %s: the broker refuses records: %s".formatted(link, problem);
        counters.recordsRefused().inc(message.count());
        queue.addRefused(message);
    }

    /**
     * Puts the records of a batch in its place: the broker does not take them together, since it
     * has another limit now, takes no batches at all, or has no stamps, without which readers could
     * not tell a batch from a record.
     */
    void split(SinkMessage batch, WriterConnection connection) {
        if (!connection.isNumbered() && splitOver != connection) {
            splitOver = connection;
            LOG.warn("{} knows no stamps: records go one by one, not compressed", link);
        }
        recent.forget(batch);
        queue.settle(batch);
        queue.addFirst(batch.split());
    }

    /** A message is too large for the broker, which was not known when it got its number. */
    void giveUpTooLarge(SinkMessage message, WriterConnection connection) {
        giveUp(message, connection, TOO_LARGE);
    }

    /** What is one record is given up; those of a batch may go one by one. */
    private void handleTooLarge(SinkMessage message, WriterConnection connection, String problem) {
        connection.noteTooLarge(message);
        if (message.message().isPlain()) {
            giveUp(message, connection, TOO_LARGE + " (" + problem + ")");
            return;
        }
        LOG.info("{} takes no batch of {} bytes: {}", link, message.payloadBytes(), problem);
        recent.forget(message);
        queue.settle(message);
        queue.addRefused(message.split());
        retry.hold();
    }

    /**
     * A message ended its connections, even when it was alone: it takes the place of a refusal.
     *
     * <p>It is the first of those that wait.
     */
    void handleEnding(SinkMessage message, WriterConnection connection) {
        LOG.warn("{} ends the connection at record {}", link, message.number());
        connection.noteTooLarge(message);
        if (message.message().isPlain()) {
            giveUp(message, connection, "the connection ends whenever it is sent");
        } else {
            recent.forget(message);
            queue.settle(message);
            queue.addFirst(message.split());
        }
    }

    /**
     * Without this one record would hold all behind it for ever. Under exactly_once it may: its
     * number would be missing for good, and the checkpoint still has it.
     */
    private void giveUp(SinkMessage message, WriterConnection connection, String problem) {
        if (link.delivery() == Delivery.EXACTLY_ONCE) {
            int most = connection.maxPayload(message.epoch());
            fault =
                    new IllegalStateException(
                            PacketLimit.describeTooLarge(link, message.payloadBytes(), most));
            throw fault;
        }
        recent.forget(message);
        queue.settle(message);
        reportLeftOut(message.payloadBytes(), problem);
    }

    /** Counts a record that was left out for its size before it had a number. */
    void leaveOut(int recordBytes) {
        reportLeftOut(recordBytes, TOO_LARGE);
    }

    private void reportLeftOut(int bytes, String problem) {
        LOG.error(
                "cannot publish a record of {} bytes to {}: {}; it is left out",
                bytes,
                link,
                problem);
        counters.recordsUndeliverable().inc();
        counters.failures().inc();
    }
}
