package io.speck.mqtt;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.apache.flink.metrics.MetricGroup;

/**
 * Tells the CPU time of a task's thread, in milliseconds from its beginning.
 *
 * <p>Flink's busy time is wall time: it grows while the thread waits for a core, by a quota or
 * because others run. What a record costs is told by this instead, however busy the machine is.
 */
final class TaskClock {
    static final String NAME = "taskCpuTimeMs";
    private static final double NANOS = 1e6;

    private TaskClock() {}

    /** To be called by the task's own thread. Nothing is told where the JVM does not know. */
    static void register(MetricGroup metrics) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        if (threads.isThreadCpuTimeSupported() && threads.isThreadCpuTimeEnabled()) {
            long thread = Thread.currentThread().getId();
            metrics.gauge(NAME, () -> threads.getThreadCpuTime(thread) / NANOS);
        }
    }
}
