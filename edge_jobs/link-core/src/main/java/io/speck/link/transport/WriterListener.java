package io.speck.link.transport;

import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;

/**
 * What a writer wants to hear of its connections, and of its link. Called by the network's thread.
 *
 * <p>Only brokers that drop what nobody has subscribed to say anything of readers and sessions.
 */
public interface WriterListener {
    /**
     * Connected.
     *
     * @param sendMaximum the most messages that may be under way
     */
    void onReady(WriterConnection connection, int sendMaximum);

    /**
     * Returns the oldest record of which it matters now whether the broker has it; null: there is
     * none. Finding that out takes a while at a broker that keeps no report of it. What does not
     * turn out in time is sent again, and readers drop the repeats.
     */
    default SentNumber oldestDoubtful() {
        return null;
    }

    /** Messages in flight have an outcome; called once for each batch. */
    default void onOutcomes(WriterConnection connection) {}

    /** The end, also of a failed attempt to connect. */
    default void onEnd(WriterConnection connection, Throwable cause) {}

    /** The broker has these records, by its own word; before {@link #onReady}. */
    default void onConfirmed(WriterConnection connection, SentRecords records) {}

    /** The link has readers, or none. */
    default void onReaders(WriterConnection connection, boolean exist) {}

    /** A reader has lost its session: what was sent not long ago is to be sent again. */
    default void onReaderLost(WriterConnection connection) {}

    /** A reader's session is announced, or was released. */
    default void onSession(WriterConnection connection, String clientId, boolean exists) {}

    /** The link has no other sessions than those that are announced. */
    default void onSessionsComplete(WriterConnection connection) {}
}
