package io.speck.flink.metrics;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.apache.flink.metrics.MetricGroup;

/**
 * Reports the CPU time of a task's thread, in milliseconds since its beginning.
 *
 * <p>Flink's busy time is wall time: it grows while the thread waits for a core, because of a quota
 * or because others run. This measures what a record costs, however busy the machine is.
 */
public final class TaskCpuTime {
    static final String NAME = "taskCpuTimeMs";
    private static final double NANOS_PER_MS = 1e6;

    private TaskCpuTime() {}

    /** Must be called by the task's own thread. Does nothing where the JVM does not measure it. */
    public static void register(MetricGroup metrics) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        if (threads.isThreadCpuTimeSupported() && threads.isThreadCpuTimeEnabled()) {
            long thread = Thread.currentThread().getId();
            metrics.gauge(NAME, () -> threads.getThreadCpuTime(thread) / NANOS_PER_MS);
        }
    }
}
