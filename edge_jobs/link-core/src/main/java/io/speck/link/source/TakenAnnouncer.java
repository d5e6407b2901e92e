package io.speck.link.source;

import io.speck.link.protocol.LogPosition;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.TakenReport;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Announces at the broker what the reader will never ask for again. Of the task's thread only. */
final class TakenAnnouncer {
    private static final Logger LOG = LoggerFactory.getLogger(TakenAnnouncer.class);
    private static final long LAST_ANNOUNCEMENT_MS = 1000;
    private static final long NOTHING = -1;

    private final LinkConfig link;
    private long messages = NOTHING; // as announced last
    private String mark;
    private LogPosition position;
    private CompletableFuture<?> announcement = CompletableFuture.completedFuture(null);

    TakenAnnouncer(LinkConfig link) {
        this.link = link;
    }

    /**
     * There is another connection: the last announcement may have been lost with the one before.
     */
    void startOver() {
        messages = NOTHING;
    }

    /**
     * Announces what a complete checkpoint covers, if that is new and there is a connection.
     *
     * @param dropped how many messages were dropped so far
     */
    void announce(
            PendingCheckpoints.Coverage coverage, long dropped, ReaderConnection connection) {
        if (announcement.isCompletedExceptionally()) {
            messages = NOTHING;
        }
        boolean nothingNew =
                coverage.taken().messages() == messages
                        && coverage.position().equals(position)
                        && Objects.equals(coverage.mark(), mark);
        if (nothingNew || connection == null || !connection.isReady()) {
            return;
        }
        messages = coverage.taken().messages();
        mark = coverage.mark();
        position = coverage.position();
        announcement =
                connection.reportTaken(
                        new TakenReport(
                                System.currentTimeMillis(),
                                coverage.checkpoint(),
                                coverage.taken(),
                                coverage.position(),
                                dropped,
                                mark));
    }

    /** Waits a moment for the last announcement to get out. */
    void awaitLast() {
        try {
            announcement.get(LAST_ANNOUNCEMENT_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Exception e) {
            LOG.debug("the last announcement of {} may be missing", link, e);
        }
    }
}
