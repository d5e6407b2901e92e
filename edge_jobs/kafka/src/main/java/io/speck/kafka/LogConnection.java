package io.speck.kafka;

import io.speck.link.transport.LinkConnection;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/**
 * A client of Kafka's library, which connects anew by itself, as one connection: it ends when the
 * library is cut off from all brokers for a moment, so that what they may have lost is looked at
 * over the next one.
 */
abstract class LogConnection implements LinkConnection, Runnable {
    /** Hears what becomes of a connection; called by its own thread. */
    interface Watch {
        void onReady(LogConnection connection);

        void onEnd(LogConnection connection, RuntimeException cause);
    }

    private static final String CONNECTIONS = "connection-count";
    private static final int MISSED_LOOKS = 2;

    private final Watch watch;
    private volatile boolean ready;
    private volatile boolean ended;
    private volatile boolean leaving;
    private int missed; // of the connection's own thread

    LogConnection(Watch watch) {
        this.watch = watch;
    }

    /** Connects; may block for some seconds. Throws when that is not possible now. */
    abstract void open();

    /** Tells the user of the link that it may be used. */
    abstract void reportReady();

    /** Works until {@link #isLeaving}; throws when the connection cannot be used any more. */
    abstract void serve();

    /** Gives back what {@link #open} has taken; what was sent before gets there before. */
    abstract void release();

    /** The connection is of no use any more. */
    abstract void reportEnd(RuntimeException cause);

    /** Wakes the connection's thread. */
    abstract void wake();

    @Override
    public final void run() {
        RuntimeException cause = new KafkaException("the connection was closed");
        try {
            open();
            ready = true;
            reportReady();
            watch.onReady(this);
            serve();
        } catch (Throwable e) { // whoever uses the link waits for the next connection
            cause = asException(e);
        }
        markEnded();
        try {
            release();
        } catch (Throwable e) {
            if (e != cause) { // which may be thrown once more
                cause.addSuppressed(e);
            }
        }
        try {
            reportEnd(cause);
        } finally {
            watch.onEnd(this, cause);
        }
    }

    /** An Error (no memory, a missing class) ends a connection like anything else. */
    static RuntimeException asException(Throwable problem) {
        return problem instanceof RuntimeException exception
                ? exception
                : new KafkaException(problem.toString(), problem);
    }

    final void leave() {
        leaving = true;
        wake();
    }

    final boolean isLeaving() {
        return leaving;
    }

    void markEnded() {
        ended = true;
    }

    @Override
    public final boolean isReady() {
        return ready && !ended;
    }

    @Override
    public final boolean isEnded() {
        return ended;
    }

    @Override
    public final boolean isNumbered() {
        return true;
    }

    /** Throws if there was no connection to any broker at this look and the last ones. */
    final void checkConnected(Map<MetricName, ? extends Metric> metrics) {
        boolean connected =
                metrics.entrySet().stream()
                        .filter(metric -> metric.getKey().name().equals(CONNECTIONS))
                        .anyMatch(metric -> ((Number) metric.getValue().metricValue()).intValue() > 0);
        missed = connected ? 0 : missed + 1;
        if (missed >= MISSED_LOOKS) {
            throw new KafkaException("no broker can be reached");
        }
    }
}
