package io.speck.link.metrics;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** Metrics that a test reads. */
public final class CountedMetrics implements LinkMetrics {
    private final Map<String, SimpleCounter> counters = new ConcurrentHashMap<>();
    private final Map<String, Supplier<?>> gauges = new ConcurrentHashMap<>();

    @Override
    public SimpleCounter records() {
        return counter("records");
    }

    @Override
    public SimpleCounter bytes() {
        return counter("bytes");
    }

    @Override
    public SimpleCounter failures() {
        return counter("failures");
    }

    @Override
    public SimpleCounter counter(String name) {
        return counters.computeIfAbsent(name, key -> new SimpleCounter());
    }

    @Override
    public <T> void gauge(String name, Supplier<T> value) {
        gauges.put(name, value);
    }

    /** Returns the present value of a gauge. */
    public Object read(String name) {
        return gauges.get(name).get();
    }
}
