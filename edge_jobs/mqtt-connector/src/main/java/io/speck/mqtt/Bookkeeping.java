package io.speck.mqtt;

import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What is said about a sink's link on the broker's retained topics: whether it has readers and what
 * the broker has, which is heard, and how far the sink is, which it says itself.
 *
 * <p>Used in the turns of an {@link Outlet}, but for {@link #hear}.
 */
final class Bookkeeping {
    /** What to do with records that nobody has subscribed to. */
    enum Readers {
        SOME,
        NONE,
        /** The link was the job's once: hold them for a while, then let them go. */
        NOT_KNOWN
    }

    /** What calls for an action of the sink. */
    enum Heard {
        NOTHING,
        /** It is new that the link has none. */
        NO_READERS,
        /** A reader has lost its session. */
        AGAIN
    }

    private static final Logger LOG = LoggerFactory.getLogger(Bookkeeping.class);
    private static final long LAST_WORD_MS = 1000;

    /** What the broker is known to have taken, by its own retained word. */
    private record Confirmed(MqttConnection by, SentNumber upTo) {}

    private final LinkConfig link;
    private final Outlet outlet;

    /** As the job was told at its start, until the broker says otherwise. */
    private volatile Readers readers;

    private volatile Confirmed confirmed;

    private OutRecord announced; // the last one over this connection
    private OutRecord witnessed; // the last one whose announcement a broker has taken
    private int heldSaid; // 0: nothing is said to be held back
    private volatile CompletableFuture<?> announcement = CompletableFuture.completedFuture(null);

    Bookkeeping(LinkConfig link, Outlet outlet, Readers readers) {
        this.link = link;
        this.outlet = outlet;
        this.readers = readers;
    }

    Readers readers() {
        return readers;
    }

    /** What this connection's broker said that it has; null: nothing. */
    SentNumber confirmed(MqttConnection by) {
        Confirmed known = confirmed;
        return known != null && known.by == by ? known.upTo : null;
    }

    /**
     * Says that the broker has everything up to this record, or more if it has.
     *
     * @return whether a broker has taken that, if only over an earlier connection; if not, there
     *     is a step when it has, or when that can be tried again
     */
    boolean announce(MqttConnection connection, OutRecord newest) {
        if (newest == announced || connection == null || !connection.isReady()) {
            return newest == witnessed;
        }
        announced = newest;
        heldSaid = 0;
        say(connection, SentNumber.of(newest), 0)
                .whenComplete(
                        (taken, problem) -> outlet.turn(() -> witness(newest, problem)));
        return newest == witnessed;
    }

    /**
     * Says that records are held back since nobody reads the link; not twice the same.
     *
     * @param first of them; the broker has what comes before
     */
    void sayHeld(MqttConnection connection, OutRecord first, int count) {
        if (count == heldSaid || first.series == null || !connection.isReady()) {
            return;
        }
        heldSaid = count;
        announced = null; // to be said again when they are gone
        say(connection, SentNumber.before(first), count);
    }

    /** Never less than is known already: records that are published twice end before it. */
    private CompletableFuture<?> say(MqttConnection connection, SentNumber least, int held) {
        SentNumber known = confirmed(connection);
        boolean nothingNew = known != null && (least.number() == 0 || known.covers(least));
        SentNumber upTo = nothingNew ? known : least;
        announcement =
                connection.publishRetained(
                        MqttConnection.SENT + link.clientId(),
                        upTo.toJson(System.currentTimeMillis(), held, link.topic()));
        return announcement;
    }

    /** Any other problem than a refusal is the end of the connection: done again over the next. */
    private void witness(OutRecord last, Throwable problem) {
        if (problem == null || isRefusal(problem)) {
            if (problem != null) {
                LOG.warn("cannot announce what was sent to {}", link, problem);
            }
            witnessed = last;
        }
        outlet.step();
    }

    private static boolean isRefusal(Throwable problem) {
        Throwable cause = problem instanceof CompletionException ? problem.getCause() : problem;
        return cause instanceof Mqtt5PubAckException;
    }

    /** Over a new connection everything is said again: a broker that was killed may forget. */
    void startOver() {
        announced = null;
        heldSaid = 0;
    }

    /** Waits a moment for the last announcement to get out. Called by any thread. */
    void awaitLastWord() {
        try {
            announcement.get(LAST_WORD_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Exception e) {
            LOG.debug("the last announcement of {} may be missing", link, e);
        }
    }

    /** On the network thread: takes note of what is said on a retained topic, or to all sinks. */
    Heard hear(MqttConnection from, String topic, byte[] payload) {
        if (!topic.startsWith(MqttConnection.READERS)) {
            SentNumber upTo = SentNumber.parse(payload, link.topic());
            if (upTo != null) {
                confirmed = new Confirmed(from, upTo);
            }
            return Heard.NOTHING;
        }
        String text = new String(payload, StandardCharsets.UTF_8);
        switch (text) {
            case "some" -> readers = Readers.SOME;
            case "none" -> {
                readers = Readers.NONE;
                return Heard.NO_READERS;
            }
            case MqttConnection.AGAIN -> {
                return Heard.AGAIN;
            }
            default -> LOG.warn("cannot read what is said on {}: {}", topic, text);
        }
        return Heard.NOTHING;
    }
}
