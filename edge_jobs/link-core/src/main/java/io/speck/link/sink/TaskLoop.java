package io.speck.link.sink;

/**
 * The thread of an engine that a writer is run by. All methods but {@link #execute} are called by
 * that thread.
 */
public interface TaskLoop {
    /**
     * Lets the thread run a task soon. Called by any thread.
     *
     * @throws java.util.concurrent.RejectedExecutionException when the thread has ended
     */
    void execute(Runnable task);

    /** Waits for a task, or a timer that is due, and runs it. */
    void runNext() throws InterruptedException;

    /** Returns the time in milliseconds by which timers go. */
    long timeMs();

    /** Runs a task at a time, between others. */
    void runAt(long timeMs, Runnable task);
}
