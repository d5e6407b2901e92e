package io.speck.link.sink;

/**
 * Ends the waiting of a message that is not full. There is at most one timer, however many messages
 * are begun: one that finds its message gone waits for the message that is there now.
 *
 * <p>Used by the task's thread, which also runs the timers.
 */
final class LingerTimer {
    private static final long NONE = Long.MAX_VALUE;

    private final TaskLoop loop;
    private final long lingerMs;
    private final Runnable onTimeout;
    private long due = NONE;
    private boolean registered;

    /** @param onTimeout what to do when a message has waited for long enough */
    LingerTimer(TaskLoop loop, long lingerMs, Runnable onTimeout) {
        this.loop = loop;
        this.lingerMs = lingerMs;
        this.onTimeout = onTimeout;
    }

    /** A message has its first record. */
    void start() {
        due = loop.timeMs() + lingerMs;
        if (!registered) {
            register();
        }
    }

    /** The message is sent. */
    void cancel() {
        due = NONE;
    }

    private void register() {
        registered = true;
        loop.runAt(due, this::check);
    }

    private void check() {
        registered = false;
        if (due == NONE) {
            return;
        }
        if (loop.timeMs() < due) {
            register();
        } else {
            onTimeout.run();
        }
    }
}
