package io.speck.flink.metrics;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import java.util.function.Supplier;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.ThreadSafeSimpleCounter;
import org.apache.flink.metrics.groups.SinkCommitterMetricGroup;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;

/** Reports the counts of a link as metrics of an operator. */
public record FlinkMetrics(
        MetricGroup group, LinkCounter records, LinkCounter bytes, LinkCounter failures)
        implements LinkMetrics {

    /** One of Flink's counters. */
    private record Counted(Counter counter) implements LinkCounter {
        @Override
        public void inc(long more) {
            counter.inc(more);
        }

        @Override
        public long getCount() {
            return counter.getCount();
        }
    }

    public static FlinkMetrics of(SourceReaderMetricGroup group) {
        return new FlinkMetrics(
                group,
                new Counted(group.getIOMetricGroup().getNumRecordsInCounter()),
                new Counted(group.getIOMetricGroup().getNumBytesInCounter()),
                new Counted(group.getNumRecordsInErrorsCounter()));
    }

    public static FlinkMetrics of(SinkWriterMetricGroup group) {
        return new FlinkMetrics(
                group,
                new Counted(group.getNumRecordsSendCounter()),
                new Counted(group.getNumBytesSendCounter()),
                new Counted(group.getNumRecordsSendErrorsCounter()));
    }

    /** Its publishers may send at the same time, each in a thread of its own. */
    public static FlinkMetrics of(SinkCommitterMetricGroup group) {
        return new FlinkMetrics(
                group,
                new Counted(group.getNumCommittablesTotalCounter()),
                new Counted(group.counter("numBytesSend", new ThreadSafeSimpleCounter())),
                new Counted(group.counter("recordsFailed")));
    }

    @Override
    public LinkCounter counter(String name) {
        return new Counted(group.counter(name));
    }

    @Override
    public <T> void gauge(String name, Supplier<T> value) {
        group.gauge(name, (Gauge<T>) value::get);
    }
}
