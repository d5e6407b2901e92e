package io.speck.mqtt.sink;

import org.apache.flink.api.common.operators.ProcessingTimeService;

/**
 * Ends the waiting of a message that is not full. There is at most one timer, however many messages
 * are begun: one that finds its message gone waits for the message that is there now.
 *
 * <p>Used by the task's thread, which also runs the timers.
 */
final class LingerTimer {
    private static final long NONE = Long.MAX_VALUE;

    private final ProcessingTimeService clock;
    private final long lingerMs;
    private final Runnable onTimeout;
    private long due = NONE;
    private boolean registered;

    /** @param onTimeout what to do when a message has waited for long enough */
    LingerTimer(ProcessingTimeService clock, long lingerMs, Runnable onTimeout) {
        this.clock = clock;
        this.lingerMs = lingerMs;
        this.onTimeout = onTimeout;
    }

    /** A message has its first record. */
    void start() {
        due = clock.getCurrentProcessingTime() + lingerMs;
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
        clock.registerTimer(due, this::check);
    }

    private void check(long now) {
        registered = false;
        if (due == NONE) {
            return;
        }
        if (clock.getCurrentProcessingTime() < due) {
            register();
        } else {
            onTimeout.run();
        }
    }
}
