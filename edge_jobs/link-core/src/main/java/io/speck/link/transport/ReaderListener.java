package io.speck.link.transport;

/** What a reader wants to hear of its connections. Called by the network's thread. */
public interface ReaderListener {
    /**
     * Connected, and messages are kept for the reader from now on at the latest.
     *
     * @param sessionPresent whether the broker had kept a place for it
     */
    void onReady(ReaderConnection connection, boolean sessionPresent);

    /** There are messages to {@link ReaderConnection#poll}; called once for each batch read. */
    void onMessages(ReaderConnection connection);

    /** The broker has let the reader in, which is not subscribed yet. */
    default void onAdmitted(ReaderConnection connection, boolean sessionPresent) {}
}
