package io.speck.link.sink;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;

/**
 * The messages that the broker has acknowledged not long ago.
 *
 * <p>Mosquitto acknowledges before it has anything on disk: a broker that is killed forgets what
 * came since its last autosave. So a sink sends these again after a loss of its connection, unless
 * the broker says that it has them; readers drop the repeats by their numbers. The time counts from
 * the last acknowledgement, since after a kill nothing of an earlier one is left. And it counts only
 * while the broker is known to live: what it had not saved when it died is needed however much later
 * it comes back.
 *
 * <p>The newest are kept in checkpoints, too: engine and broker of a site may fall together.
 *
 * <p>Thread-safe: a publisher fills it, and whoever makes a checkpoint reads it.
 */
final class ResendWindow {
    /** After so long a broker's silence has ended the connection, over any transport. */
    static final long LONGEST_SILENCE_NS = 30_000_000_000L;

    private final ArrayDeque<SinkMessage> messages = new ArrayDeque<>();
    private final long spanNs;
    private final long maxBytes;
    private final long maxStateBytes;
    private final LinkCounter cut;
    private long bytes;
    private long lastAcknowledgedNs = Long.MIN_VALUE;
    private boolean connected;
    private volatile int leftOut;

    /**
     * @param maxBytes what goes beyond is forgotten early, the oldest first
     * @param maxStateBytes how much of it a checkpoint gets, the newest
     * @param cut counts what was forgotten early
     */
    ResendWindow(Duration span, long maxBytes, long maxStateBytes, LinkCounter cut) {
        this.spanNs = span.toNanos();
        this.maxBytes = maxBytes;
        this.maxStateBytes = maxStateBytes;
        this.cut = cut;
    }

    /** Notes that a message was acknowledged, also for a second time. */
    synchronized void add(SinkMessage message, long nowNs) {
        if (spanNs == 0) {
            return;
        }
        message.acknowledgedNs = nowNs;
        lastAcknowledgedNs = nowNs;
        message.resent = false;
        if (message.kept) {
            return; // in its place: what is sent again goes before what is new
        }
        message.kept = true;
        messages.add(message);
        bytes += size(message);
        while (bytes > maxBytes) {
            forgetOldest();
            cut.inc();
        }
    }

    /** Notes whether there is a connection to the broker. */
    synchronized void setConnected(boolean connected) {
        this.connected = connected;
    }

    synchronized void prune(long nowNs) {
        long aliveNs = lastAcknowledgedNs;
        if (connected && nowNs - LONGEST_SILENCE_NS > aliveNs) {
            aliveNs = nowNs - LONGEST_SILENCE_NS;
        }
        SinkMessage oldest;
        while ((oldest = messages.peek()) != null
                && !oldest.resent
                && aliveNs - oldest.acknowledgedNs > spanNs) {
            forgetOldest();
        }
    }

    /** Removes a message that will not be sent again after all. */
    synchronized void forget(SinkMessage message) {
        if (message.kept && messages.remove(message)) {
            message.kept = false;
            bytes -= size(message);
        }
    }

    synchronized int size() {
        return messages.size();
    }

    /** Returns the number of the newest record; null: it has none. */
    synchronized SentNumber newest() {
        return messages.isEmpty() ? null : messages.getLast().last();
    }

    /**
     * Returns what is to be sent again, in order. It stays in the window meanwhile, for
     * checkpoints.
     *
     * @param known what the broker says that it has; null: it says nothing
     */
    synchronized List<SinkMessage> sendAgain(SentRecords known) {
        ArrayList<SinkMessage> missing = new ArrayList<>();
        boolean reached = false; // a broker that has this has all that it acknowledged before
        for (Iterator<SinkMessage> newest = messages.descendingIterator(); newest.hasNext(); ) {
            SinkMessage message = newest.next();
            reached |= message.isReachedBy(known);
            message.resent = !reached || lacks(known, message);
            if (message.resent) {
                missing.add(message);
            }
        }
        Collections.reverse(missing);
        return missing;
    }

    /** What was to be sent again already may have been refused, and what came after it not. */
    private static boolean lacks(SentRecords known, SinkMessage message) {
        return message.resent && known.mayHaveGaps() && !message.isCoveredBy(known);
    }

    /** Returns the newest messages, as many as a checkpoint may take. */
    synchronized List<NumberedMessages> snapshot(long nowNs) {
        prune(nowNs);
        ArrayDeque<SinkMessage> newest = new ArrayDeque<>();
        long room = maxStateBytes;
        for (Iterator<SinkMessage> it = messages.descendingIterator(); it.hasNext(); ) {
            SinkMessage message = it.next();
            room -= message.payloadBytes() + NumberedMessages.OVERHEAD_BYTES;
            if (room < 0) {
                break;
            }
            newest.addFirst(message);
        }
        leftOut = messages.size() - newest.size();
        return NumberedMessages.join(newest);
    }

    /** Returns how many messages the last checkpoint had no room for. */
    int leftOut() {
        return leftOut;
    }

    private void forgetOldest() {
        SinkMessage oldest = messages.poll();
        oldest.kept = false;
        bytes -= size(oldest);
    }

    private static long size(SinkMessage message) {
        return message.payloadBytes() + Message.OVERHEAD_BYTES;
    }
}
