package io.speck.link.transport;

import io.speck.link.transport.OutgoingMessage.Outcome;
import java.util.IdentityHashMap;
import org.jctools.queues.atomic.SpscUnboundedAtomicArrayQueue;

/**
 * The messages that were sent over a connection and have no outcome yet, in order. The sending
 * thread adds them; all else is called by the network thread.
 */
public final class InFlightMessages {
    private static final int CHUNK = 256;

    /** An outcome that came out of turn. */
    private record EarlyOutcome(Outcome outcome, String problem) {}

    private final SpscUnboundedAtomicArrayQueue<OutgoingMessage> queue =
            new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final IdentityHashMap<Object, EarlyOutcome> early = new IdentityHashMap<>();
    private long settled;

    /** A message is about to be sent. */
    public void add(OutgoingMessage message) {
        message.begin();
        queue.offer(message);
    }

    /** Returns how many messages have had an outcome. */
    public long settledCount() {
        return settled;
    }

    /**
     * Gives the oldest message its outcome.
     *
     * @return false when the result is not that of the oldest one
     */
    public boolean settle(Object packet, Outcome outcome, String problem) {
        OutgoingMessage oldest = queue.peek();
        if (oldest == null || oldest.packet() != packet) {
            return false;
        }
        settleOldest(outcome, problem);
        settleEarly();
        return true;
    }

    /** A message was not sent at all: the client library says so at once, out of turn. */
    public void settleUnsent(Object packet, Outcome outcome, String problem) {
        early.put(packet, new EarlyOutcome(outcome, problem));
        settleEarly();
    }

    private void settleEarly() {
        OutgoingMessage oldest;
        while (!early.isEmpty() && (oldest = queue.peek()) != null) {
            EarlyOutcome known = oldest.packet() == null ? null : early.remove(oldest.packet());
            if (known == null) {
                return;
            }
            settleOldest(known.outcome, known.problem);
        }
    }

    private void settleOldest(Outcome outcome, String problem) {
        queue.poll().settle(outcome, problem);
        settled++;
    }
}
