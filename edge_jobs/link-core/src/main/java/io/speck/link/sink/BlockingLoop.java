package io.speck.link.sink;

import java.util.Comparator;
import java.util.PriorityQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The thread that calls it, for engines that have no mailbox of their own. */
public final class BlockingLoop implements TaskLoop {
    private record Timer(long timeMs, Runnable task) {}

    private final LinkedBlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
    private final PriorityQueue<Timer> timers =
            new PriorityQueue<>(Comparator.comparingLong(Timer::timeMs));

    @Override
    public void execute(Runnable task) {
        tasks.add(task);
    }

    @Override
    public void runNext() throws InterruptedException {
        Timer first = timers.peek();
        Runnable task =
                first == null
                        ? tasks.take()
                        : tasks.poll(first.timeMs - timeMs(), TimeUnit.MILLISECONDS);
        if (task != null) {
            task.run();
        }
        runDueTimers();
    }

    /** Runs what is there, without waiting. */
    public void runAll() {
        Runnable task;
        while ((task = tasks.poll()) != null) {
            task.run();
        }
        runDueTimers();
    }

    @Override
    public long timeMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    @Override
    public void runAt(long timeMs, Runnable task) {
        timers.add(new Timer(timeMs, task));
    }

    private void runDueTimers() {
        while (!timers.isEmpty() && timers.peek().timeMs <= timeMs()) {
            timers.poll().task.run();
        }
    }
}
