package io.speck.mqtt.sink;

import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.connection.MqttConnection;
import io.speck.mqtt.protocol.SentNumber;
import io.speck.mqtt.protocol.SinkReport;
import io.speck.mqtt.protocol.Topics;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What is known of a sink's link from the broker's retained topics (whether it has readers, and
 * which number the broker has), and what the sink announces there itself.
 *
 * <p>Used by the publisher's owner, but for {@link #receive}.
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

    /** What an announcement asks of the sink. */
    enum Request {
        NOTHING,
        /** The link has no readers any more: what is held may go. */
        RETRY,
        /** A reader has lost its session. */
        RESEND,
        /** What waited for the readers' sessions may go. */
        ADVANCE
    }

    private static final Logger LOG = LoggerFactory.getLogger(LinkStatus.class);
    private static final long LAST_ANNOUNCEMENT_MS = 1000;

    /** What a connection's broker has by its own retained word. */
    private record Confirmed(MqttConnection connection, SentNumber number) {}

    private final LinkConfig link;
    private final Executor owner;
    private final Runnable onProgress;
    private final Supplier<SinkReport> report;

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
     * @param report returns what is announced of the sink beside its numbers
     */
    LinkStatus(
            LinkConfig link,
            Readers readers,
            Executor owner,
            Runnable onProgress,
            Supplier<SinkReport> report) {
        this.link = link;
        this.readers = readers;
        this.owner = owner;
        this.onProgress = onProgress;
        this.report = report;
    }

    Readers readers() {
        return readers;
    }

    /** Whether what is published over this connection reaches all readers, or none is known of. */
    boolean reachesAllReaders(MqttConnection connection) {
        return !link.delivery().isAcknowledged() || sessions.areComplete(connection);
    }

    /** Returns the last number that this connection's broker has; null: it said nothing. */
    SentNumber confirmedNumber(MqttConnection connection) {
        Confirmed known = confirmed;
        return known != null && known.connection == connection ? known.number : null;
    }

    /**
     * Announces that the broker has everything up to this message, or more if it has.
     *
     * @return whether a broker has taken that, if only over an earlier connection; if not, the
     *     owner is called when it has, or when that can be tried again
     */
    boolean announce(MqttConnection connection, SinkMessage newest) {
        boolean nothingNew = newest == lastAnnounced && report.get().equals(lastReport);
        if (nothingNew || connection == null || !connection.isReady()) {
            return newest == lastAcknowledged;
        }
        lastAnnounced = newest;
        heldRecords = 0;
        SentNumber number = SentNumber.of(newest.epoch(), newest.lastNumber());
        publish(connection, number, 0)
                .whenComplete(
                        (result, problem) -> owner.execute(() -> acknowledge(newest, problem)));
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
            MqttConnection connection, SinkMessage first, int records, boolean refused) {
        if (records == heldRecords || first.epoch() == null || !connection.isReady()) {
            return;
        }
        heldRecords = records;
        lastAnnounced = null; // to be announced again when they are gone
        int unread = refused ? 0 : records;
        publish(connection, SentNumber.of(first.epoch(), first.number() - 1), unread);
    }

    /** Never announces less than is known already: records published twice end before that. */
    private CompletableFuture<?> publish(MqttConnection connection, SentNumber least, int held) {
        SentNumber known = confirmedNumber(connection);
        boolean nothingNew = known != null && (least.number() == 0 || known.covers(least));
        SentNumber number = nothingNew ? known : least;
        lastReport = report.get();
        announcement =
                connection.publish(
                        Topics.SENT + link.clientId(),
                        number.toJson(System.currentTimeMillis(), held, lastReport, link.topic()),
                        true);
        return announcement;
    }

    /** Any other problem than a refusal is the end of the connection: done again over the next. */
    private void acknowledge(SinkMessage last, Throwable problem) {
        if (problem == null || isRefusal(problem)) {
            if (problem != null) {
                LOG.warn("cannot announce what was sent to {}", link, problem);
            }
            lastAcknowledged = last;
        }
        onProgress.run();
    }

    private static boolean isRefusal(Throwable problem) {
        Throwable cause = problem instanceof CompletionException ? problem.getCause() : problem;
        return cause instanceof Mqtt5PubAckException;
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

    /** Receives an announcement of somebody; on the network thread. */
    Request receive(MqttConnection connection, String topic, byte[] payload) {
        if (topic.startsWith(Topics.SESSIONS)) {
            String clientId = topic.substring(topic.lastIndexOf('/') + 1);
            sessions.hear(connection, clientId, payload.length > 0);
            return Request.ADVANCE;
        }
        if (!topic.startsWith(Topics.READERS)) {
            SentNumber number = SentNumber.parse(payload, link.topic());
            if (number != null) {
                confirmed = new Confirmed(connection, number);
            }
            return Request.NOTHING;
        }
        String text = new String(payload, StandardCharsets.UTF_8);
        switch (text) {
            case Topics.SOME -> readers = Readers.SOME;
            case Topics.NONE -> {
                readers = Readers.NONE;
                return Request.RETRY;
            }
            case Topics.AGAIN -> {
                return Request.RESEND;
            }
            case Topics.COMPLETE -> {
                sessions.confirm(connection);
                return Request.ADVANCE;
            }
            default -> LOG.warn("cannot read the announcement on {}: {}", topic, text);
        }
        return Request.NOTHING;
    }
}
