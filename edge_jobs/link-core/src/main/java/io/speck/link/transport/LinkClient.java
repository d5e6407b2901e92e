package io.speck.link.transport;

import java.util.concurrent.Executor;

/**
 * Keeps one end of a link connected: connects, and after each loss connects anew. A broker that is
 * away never fails the job: its messages wait.
 *
 * @param <C> what it reads or writes with
 */
public interface LinkClient<C> extends AutoCloseable {
    /** Starts connecting; returns at once. */
    void start();

    /**
     * Returns the newest connection; it may be still connecting, or lost. Null before the start.
     */
    C current();

    boolean isConnected();

    /**
     * Returns why nothing gets through, for people; empty: nothing is wrong, or nothing is tried.
     */
    String problem();

    /**
     * Waits for the first connection, but not for ever: a broker that is away is tried again and
     * again. An interrupt ends the wait, and is left to whoever looks at it next.
     */
    void awaitReady();

    /** Returns a thread of the client, for who has none of its own; usable until the close. */
    Executor networkThread();

    /** Runs a task on a thread of the client after a pause. */
    void schedule(long delayMs, Runnable task);

    /** Disconnects; a reader's place stays at the broker. What was sent before still arrives. */
    @Override
    void close();
}
