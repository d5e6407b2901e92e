package io.speck.kafka;

import java.time.Duration;

/**
 * Notices that a producer has died: its thread ends with an Error (no direct memory, say), after
 * which nothing that was sent has an outcome any more. Of one thread only.
 */
final class OutcomeWatch {
    private final long patienceNs;
    private boolean waiting;
    private long seen;
    private long sinceNs;

    /** @param patience in which a producer that lives has an outcome, if only a timeout */
    OutcomeWatch(Duration patience) {
        this.patienceNs = patience.toNanos();
    }

    /**
     * Looks at the counts of a connection.
     *
     * @return whether no outcome has come for longer than the patience, though some are due
     */
    boolean isStuck(long sent, long settled, long nowNs) {
        if (!waiting || settled != seen) {
            sinceNs = nowNs;
        }
        waiting = settled < sent;
        seen = settled;
        return waiting && nowNs - sinceNs > patienceNs;
    }
}
