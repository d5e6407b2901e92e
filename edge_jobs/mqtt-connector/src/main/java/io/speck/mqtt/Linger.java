package io.speck.mqtt;

import org.apache.flink.api.common.operators.ProcessingTimeService;

/**
 * Ends the waiting of a message that is not full. There is one timer at most, however many messages
 * are begun: one that finds its message gone looks after the one that is there now.
 *
 * <p>Used by the task's thread, which the timers come to as well.
 */
final class Linger {
    private static final long NONE = Long.MAX_VALUE;

    private final ProcessingTimeService clock;
    private final long lingerMs;
    private final Runnable over;
    private long due = NONE;
    private boolean planned;

    /** @param over what to do when a message has waited for long enough */
    Linger(ProcessingTimeService clock, long lingerMs, Runnable over) {
        this.clock = clock;
        this.lingerMs = lingerMs;
        this.over = over;
    }

    /** A message has its first record. */
    void begin() {
        due = clock.getCurrentProcessingTime() + lingerMs;
        if (!planned) {
            plan();
        }
    }

    /** It is on its way. */
    void end() {
        due = NONE;
    }

    private void plan() {
        planned = true;
        clock.registerTimer(due, this::look);
    }

    private void look(long now) {
        planned = false;
        if (due == NONE) {
            return;
        }
        if (clock.getCurrentProcessingTime() < due) {
            plan();
        } else {
            over.run();
        }
    }
}
