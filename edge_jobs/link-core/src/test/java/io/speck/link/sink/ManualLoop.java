package io.speck.link.sink;

import java.util.Comparator;
import java.util.PriorityQueue;

/** A thread of an engine whose time a test sets. */
final class ManualLoop implements TaskLoop {
    private record Timer(long timeMs, Runnable task) {}

    private final PriorityQueue<Timer> timers =
            new PriorityQueue<>(Comparator.comparingLong(Timer::timeMs));
    private long now;

    /** Sets the time, and runs the timers that are due. */
    void setCurrentTime(long timeMs) {
        now = timeMs;
        while (!timers.isEmpty() && timers.peek().timeMs() <= now) {
            timers.poll().task().run();
        }
    }

    int getNumActiveTimers() {
        return timers.size();
    }

    @Override
    public void execute(Runnable task) {
        task.run();
    }

    @Override
    public void runNext() {}

    @Override
    public long timeMs() {
        return now;
    }

    @Override
    public void runAt(long timeMs, Runnable task) {
        timers.add(new Timer(timeMs, task));
    }
}
