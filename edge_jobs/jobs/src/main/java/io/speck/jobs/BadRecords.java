package io.speck.jobs;

import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.MetricGroup;

/** The counters {@code malformed} and {@code impossible} of an operator. */
final class BadRecords {
    private final Counter malformed;
    private final Counter impossible;

    BadRecords(MetricGroup metrics) {
        malformed = metrics.counter("malformed");
        impossible = metrics.counter("impossible");
    }

    /** Counts a bad record; returns whether the record is good. */
    boolean isGood(DetectionReader.Verdict verdict) {
        switch (verdict) {
            case MALFORMED -> malformed.inc();
            case IMPOSSIBLE -> impossible.inc();
            default -> {
                return true;
            }
        }
        return false;
    }
}
