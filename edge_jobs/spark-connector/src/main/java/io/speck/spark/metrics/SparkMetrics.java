package io.speck.spark.metrics;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;

/** The counts of one end of a link. */
public final class SparkMetrics implements LinkMetrics {
    private final Map<String, LinkCounter> counters = new ConcurrentHashMap<>();
    private final Map<String, Supplier<?>> gauges = new ConcurrentHashMap<>();

    private static final class Sum implements LinkCounter {
        private final LongAdder adder = new LongAdder();

        @Override
        public void inc(long more) {
            adder.add(more);
        }

        @Override
        public long getCount() {
            return adder.sum();
        }
    }

    @Override
    public LinkCounter records() {
        return counter("records");
    }

    @Override
    public LinkCounter bytes() {
        return counter("bytes");
    }

    @Override
    public LinkCounter failures() {
        return counter("failures");
    }

    /** The same name gives the same counter: two parts of a sink count together. */
    @Override
    public LinkCounter counter(String name) {
        return counters.computeIfAbsent(name, key -> new Sum());
    }

    @Override
    public <T> void gauge(String name, Supplier<T> value) {
        gauges.put(name, value);
    }

    /** Returns all values by name. */
    public Map<String, String> values() {
        Map<String, String> values = new LinkedHashMap<>();
        counters.forEach((name, counter) -> values.put(name, Long.toString(counter.getCount())));
        gauges.forEach((name, gauge) -> values.put(name, Objects.toString(gauge.get(), "")));
        return values;
    }
}
