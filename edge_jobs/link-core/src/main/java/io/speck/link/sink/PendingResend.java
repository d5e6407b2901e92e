package io.speck.link.sink;

import io.speck.link.protocol.SentRecords;
import java.util.List;

/**
 * Whether the resend window is to be sent again: over each new connection, since its broker may
 * have forgotten it, and when a reader asks for it. Not thread-safe.
 */
final class PendingResend {
    private final ResendWindow window;
    private boolean due;
    private boolean requested;

    PendingResend(ResendWindow window) {
        this.window = window;
    }

    boolean isDue() {
        return due;
    }

    /** Returns how many messages may have to be sent again. */
    int size() {
        return due ? window.size() : 0;
    }

    /** There is a new connection. */
    void startOver() {
        due = window.size() > 0;
    }

    /** A reader has lost its session: all of the window is due, whatever the broker has. */
    void request() {
        due = true;
        requested = true;
    }

    /**
     * Whether it can begin.
     *
     * @param anySent what was sent may have been taken for other readers only, so a request waits
     *     until that is settled
     */
    boolean canBegin(boolean anySent) {
        return due && !(requested && anySent);
    }

    /**
     * Begins.
     *
     * @param confirmed what the broker says that it has; null: it says nothing
     * @return the messages to send, in order
     */
    List<SinkMessage> begin(SentRecords confirmed) {
        List<SinkMessage> missing = window.sendAgain(requested ? null : confirmed);
        due = false;
        requested = false;
        return missing;
    }
}
