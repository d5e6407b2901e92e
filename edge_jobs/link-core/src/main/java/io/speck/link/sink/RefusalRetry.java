package io.speck.link.sink;

/**
 * Decides when messages that the broker has refused are tried again.
 *
 * <p>The first refusal holds new messages back. When all that were sent have an outcome, the first
 * of the refused is tried alone after a pause, which grows with each trial; when it is accepted,
 * the rest follows in order. Not thread-safe.
 */
final class RefusalRetry {
    static final long FIRST_PAUSE_MS = 50;
    static final long MAX_PAUSE_MS = 2000;

    private static final long READ = Long.MIN_VALUE;

    private final long patienceNs;
    private boolean holding;
    private boolean scheduled;
    private long pauseMs = FIRST_PAUSE_MS;
    private long unreadSinceNs = READ;

    /** @param patienceNs how long a link that may be nobody's any more is given to find readers */
    RefusalRetry(long patienceNs) {
        this.patienceNs = patienceNs;
    }

    /** Whether new messages wait until the refused ones are accepted. */
    boolean isHolding() {
        return holding;
    }

    /**
     * A message was refused.
     *
     * @return whether holding begins with it
     */
    boolean hold() {
        boolean begins = !holding;
        holding = true;
        return begins;
    }

    /**
     * A message was accepted.
     *
     * @param moreRefused whether others are refused: then it was sent before the first of them
     * @return whether holding ends with it
     */
    boolean accept(boolean moreRefused) {
        if (!holding || moreRefused) {
            return false;
        }
        holding = false;
        pauseMs = FIRST_PAUSE_MS;
        return true;
    }

    /** Nothing is held back any more: the connection is new, or there is nothing left to try. */
    void release() {
        holding = false;
    }

    /** Whether it is time to {@link #schedule} a trial. */
    boolean needsTrial(boolean anySent) {
        return holding && !anySent && !scheduled;
    }

    /** Notes that a trial is scheduled; returns the pause before it, in milliseconds. */
    long schedule() {
        scheduled = true;
        long pause = pauseMs;
        pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2);
        return pause;
    }

    /** The pause is over. */
    void begin() {
        scheduled = false;
    }

    /** The reason for the refusals may be gone: the next pause is short again. */
    void shortenPause() {
        pauseMs = FIRST_PAUSE_MS;
    }

    /** A message had a reader, or needed none. */
    void noteRead() {
        unreadSinceNs = READ;
    }

    /** A message had no reader; returns whether that has been so for longer than the patience. */
    boolean noteUnread(long nowNs) {
        if (unreadSinceNs == READ) {
            unreadSinceNs = nowNs;
        }
        return nowNs - unreadSinceNs > patienceNs;
    }
}
