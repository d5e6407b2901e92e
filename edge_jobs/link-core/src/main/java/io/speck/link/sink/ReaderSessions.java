package io.speck.link.sink;

import io.speck.link.transport.WriterConnection;
import java.util.HashSet;
import java.util.Set;

/**
 * The readers' sessions on a link, as its broker announces them, and whether the broker has lost
 * any.
 *
 * <p>A broker that was killed comes back with what it had saved. A session that was announced over
 * an earlier connection, and is not over this one, was made after the last autosave, and what is
 * published now would not get into it. That another reader has a session hides this: the broker
 * acknowledges as if all had theirs. The sink therefore waits until the session is made again, by
 * its reader or by the control plane.
 *
 * <p>A session may also have been released while the sink was not connected. Only the control plane
 * can tell: it then says that the sessions are complete.
 *
 * <p>Thread-safe: network threads hear, the publisher's owner asks.
 */
final class ReaderSessions {
    private final Set<String> expected = new HashSet<>(); // of all connections
    private final Set<String> present = new HashSet<>(); // of the newest
    private WriterConnection newest;

    /** What {@link #areComplete} reads for each message. */
    private volatile WriterConnection completeOver;

    private volatile boolean nothingExpected = true;

    /** Whether the broker of this connection has all sessions. */
    boolean areComplete(WriterConnection connection) {
        return nothingExpected || completeOver == connection;
    }

    /** A session is announced, or its announcement is cleared: it was released. */
    synchronized void hear(WriterConnection from, String clientId, boolean exists) {
        if (!startOver(from)) {
            return;
        }
        if (exists) {
            expected.add(clientId);
            present.add(clientId);
        } else {
            expected.remove(clientId);
            present.remove(clientId);
        }
        update();
    }

    /** The control plane knows of no others than those that this broker has. */
    synchronized void confirm(WriterConnection from) {
        if (startOver(from)) {
            expected.retainAll(present);
            update();
        }
    }

    private boolean startOver(WriterConnection from) {
        if (from.isEnded()) {
            return false;
        }
        if (from != newest) {
            newest = from;
            present.clear();
        }
        return true;
    }

    private void update() {
        nothingExpected = expected.isEmpty();
        completeOver = present.containsAll(expected) ? newest : null;
    }
}
