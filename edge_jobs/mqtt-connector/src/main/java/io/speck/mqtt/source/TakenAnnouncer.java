package io.speck.mqtt.source;

import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.connection.MqttConnection;
import io.speck.mqtt.protocol.Topics;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Announces, retained, what the reader will never ask for again. Of the task's thread only. */
final class TakenAnnouncer {
    private static final Logger LOG = LoggerFactory.getLogger(TakenAnnouncer.class);
    private static final long LAST_ANNOUNCEMENT_MS = 1000;
    private static final long NOTHING = -1;

    private final LinkConfig link;
    private long messages = NOTHING; // as announced last
    private String mark;
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
            PendingCheckpoints.Coverage coverage, long dropped, MqttConnection connection) {
        if (announcement.isCompletedExceptionally()) {
            messages = NOTHING;
        }
        boolean nothingNew =
                coverage.taken().messages() == messages && Objects.equals(coverage.mark(), mark);
        if (nothingNew || connection == null || !connection.isReady()) {
            return;
        }
        messages = coverage.taken().messages();
        mark = coverage.mark();
        String json =
                coverage.taken()
                        .toJson(
                                System.currentTimeMillis(), coverage.checkpoint(), dropped, mark);
        announcement =
                connection.publish(
                        Topics.TAKEN + link.clientId(),
                        json.getBytes(StandardCharsets.UTF_8),
                        true);
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
