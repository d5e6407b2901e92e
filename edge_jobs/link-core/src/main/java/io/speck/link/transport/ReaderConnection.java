package io.speck.link.transport;

import io.speck.link.protocol.LogPosition;
import java.util.concurrent.CompletableFuture;

/** A connection over which a link is read. */
public interface ReaderConnection extends LinkConnection {
    /** Returns the next message, or null; {@link #messages} reads it. */
    Object poll();

    boolean hasMessages();

    /** Returns how much payload waits; read by any thread. */
    long waitingBytes();

    /** Reads what {@link #poll} returns. */
    IncomingMessages messages();

    /** Lets the broker go on sending if enough was taken; the reader calls it often. */
    void resumeIfDrained();

    /**
     * Acknowledges the first messages of this connection: so many of those that are {@link
     * IncomingMessages#isAcknowledged acknowledged}, counted from its beginning. They do not come
     * again.
     */
    void acknowledgeUpTo(long count);

    /**
     * Returns how many messages found no room in the reader since the last call, under
     * at_most_once; called by the network's thread.
     */
    long takeOverflow();

    /**
     * Returns where in its log a reader is that has done with the first messages of this connection:
     * so many of those that are acknowledged, which are all that were polled or all but the last.
     *
     * @return null when that is not known yet, and none was polled
     */
    default LogPosition position(long count) {
        return LogPosition.NONE;
    }

    /**
     * Reports what a complete checkpoint has taken; it comes after the acknowledgement of that. At a
     * broker that keeps logs this is the acknowledgement.
     *
     * @return completes when the broker has the report, or will not have it
     */
    CompletableFuture<?> reportTaken(TakenReport report);

    /**
     * The reader's session had to be made: sinks that wait for it go on.
     *
     * @param resends whether they are to send again what they have kept
     */
    void announceSession(boolean resends);
}
