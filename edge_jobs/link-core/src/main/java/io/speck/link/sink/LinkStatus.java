package io.speck.link.sink;

import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import io.speck.link.protocol.SinkReport;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.WriterConnection;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the broker says of a sink's link (whether it has readers, and which number it has), and what
 * the sink reports there itself.
 *
 * <p>Used by the publisher's owner, but for what is heard on the network thread.
 */
final class LinkStatus {
    /** What to do with messages that nobody has subscribed to. */
    enum Readers {
        /** Hold them. */
        SOME,
        /** Let them go. */
        NONE,
        /** The link was the job's once: hold them for a while, then let them go. */
        UNKNOWN
    }

    private static final Logger LOG = LoggerFactory.getLogger(LinkStatus.class);
    private static final long LAST_ANNOUNCEMENT_MS = 1000;

    /** What a connection's broker has by its own word. */
    private record Confirmed(WriterConnection connection, SentRecords records) {}

    private final LinkConfig link;
    private final Executor owner;
    private final Runnable onProgress;
    private final Supplier<SinkReport> ownReport;

    /** As the job's arguments say at its start, until the broker says otherwise. */
    private volatile Readers readers;

    private volatile Confirmed confirmed;

    private final ReaderSessions sessions = new ReaderSessions();

    private SinkMessage lastAnnounced; // the last one over this connection
    private SinkMessage lastAcknowledged; // the last one whose announcement a broker has taken
    private SinkReport lastReport = SinkReport.NOTHING;
    private int heldRecords; // records that are announced to be held back
    private volatile CompletableFuture<?> announcement = CompletableFuture.completedFuture(null);

    /**
     * @param onProgress run by the owner when an announcement has an outcome
     * @param ownReport returns what is announced of the sink beside its numbers
     */
    LinkStatus(
            LinkConfig link,
            Readers readers,
            Executor owner,
            Runnable onProgress,
            Supplier<SinkReport> ownReport) {
        this.link = link;
        this.readers = readers;
        this.owner = owner;
        this.onProgress = onProgress;
        this.ownReport = ownReport;
    }

    Readers readers() {
        return readers;
    }

    /** Whether what is published over this connection reaches all readers, or none is known of. */
    boolean reachesAllReaders(WriterConnection connection) {
        return !link.delivery().isAcknowledged() || sessions.areComplete(connection);
    }

    /** Returns what this connection's broker has; null: it said nothing. */
    SentRecords confirmedRecords(WriterConnection connection) {
        Confirmed known = confirmed;
        return known != null && known.connection == connection ? known.records : null;
    }

    /**
     * Announces that the broker has everything up to this message, or more if it has.
     *
     * @return whether a broker has taken that, if only over an earlier connection; if not, the
     *     owner is called when it has, or when that can be tried again
     */
    boolean announce(WriterConnection connection, SinkMessage newest) {
        boolean nothingNew = newest == lastAnnounced && ownReport.get().equals(lastReport);
        if (nothingNew || connection == null || !connection.isReady()) {
            return newest == lastAcknowledged;
        }
        lastAnnounced = newest;
        heldRecords = 0;
        SentNumber number = SentNumber.of(newest.epoch(), newest.lastNumber());
        publish(connection, number, 0)
                .whenComplete(
                        (refusal, problem) ->
                                owner.execute(() -> acknowledge(newest, refusal, problem)));
        return newest == lastAcknowledged;
    }

    /**
     * Announces that records are held back since nobody reads the link, a reader's session is
     * missing, or the broker refuses them; not twice the same.
     *
     * @param first of them; the broker has what comes before
     * @param refused whether the broker refuses them, which the report says
     */
    void announceHeld(
            WriterConnection connection, SinkMessage first, int records, boolean refused) {
        if (records == heldRecords || first.epoch() == null || !connection.isReady()) {
            return;
        }
        heldRecords = records;
        lastAnnounced = null; // to be announced again when they are gone
        int unread = refused ? 0 : records;
        publish(connection, SentNumber.of(first.epoch(), first.number() - 1), unread);
    }

    /** Never announces less than is known already: records published twice end before that. */
    private CompletableFuture<String> publish(
            WriterConnection connection, SentNumber least, int held) {
        SentNumber number = least;
        if (confirmedRecords(connection) instanceof SentNumber known
                && (least.number() == 0 || known.covers(least))) {
            number = known;
        }
        lastReport = ownReport.get();
        CompletableFuture<String> report =
                connection.reportSent(
                        number.toJson(System.currentTimeMillis(), held, lastReport, link.topic()));
        announcement = report;
        return report;
    }

    /** Any other problem than a refusal is the end of the connection: done again over the next. */
    private void acknowledge(SinkMessage last, String refusal, Throwable problem) {
        if (problem == null) {
            if (refusal != null) {
                LOG.warn("cannot announce what was sent to {}: {}", link, refusal);
            }
            lastAcknowledged = last;
        }
        onProgress.run();
    }

    /** Over a new connection all is announced again: a broker that was killed may forget. */
    void startOver() {
        lastAnnounced = null;
        heldRecords = 0;
    }

    /** Waits a moment for the last announcement to get out. Called by any thread. */
    void awaitLastAnnouncement() {
        try {
            announcement.get(LAST_ANNOUNCEMENT_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Exception e) {
            LOG.debug("the last announcement of {} may be missing", link, e);
        }
    }

    /** The broker says what it has; on the network thread. */
    void confirm(WriterConnection connection, SentRecords records) {
        confirmed = new Confirmed(connection, records);
    }

    /** The broker says whether the link has readers; on the network thread. */
    void setReaders(boolean exist) {
        readers = exist ? Readers.SOME : Readers.NONE;
    }

    /** What the broker says of readers' sessions; heard on the network thread. */
    ReaderSessions sessions() {
        return sessions;
    }
}
