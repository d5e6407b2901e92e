package io.speck.link.sink;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Supplier;

/**
 * The metrics of a port as those of one link: counts are added up, it is connected when all links
 * are, and its problem is that of the first link that has one. Threads of all links may count.
 */
final class PortMetrics implements LinkMetrics {
    private static final String CONNECTED = "connected";

    private record Locked(LinkCounter counter) implements LinkCounter {
        @Override
        public synchronized void inc(long more) {
            counter.inc(more);
        }

        @Override
        public synchronized long getCount() {
            return counter.getCount();
        }
    }

    private final LinkMetrics port;
    private final LinkCounter records;
    private final LinkCounter bytes;
    private final LinkCounter failures;
    private final Map<String, LinkCounter> counters = new ConcurrentHashMap<>();
    private final Map<String, List<Supplier<?>>> gauges = new ConcurrentHashMap<>();

    private PortMetrics(LinkMetrics port) {
        this.port = port;
        this.records = new Locked(port.records());
        this.bytes = new Locked(port.bytes());
        this.failures = new Locked(port.failures());
    }

    /** Returns the metrics for each of so many links. */
    static LinkMetrics of(LinkMetrics port, int links) {
        return links == 1 ? port : new PortMetrics(port);
    }

    @Override
    public LinkCounter records() {
        return records;
    }

    @Override
    public LinkCounter bytes() {
        return bytes;
    }

    @Override
    public LinkCounter failures() {
        return failures;
    }

    @Override
    public LinkCounter counter(String name) {
        return counters.computeIfAbsent(name, key -> new Locked(port.counter(key)));
    }

    @Override
    public <T> void gauge(String name, Supplier<T> value) {
        List<Supplier<?>> ofLinks = gauges.computeIfAbsent(name, key -> new CopyOnWriteArrayList<>());
        ofLinks.add(value);
        if (ofLinks.size() == 1) {
            port.gauge(name, () -> join(name, ofLinks.stream().map(Supplier::get).toList()));
        }
    }

    private static Object join(String name, List<?> values) {
        if (values.get(0) instanceof Number) {
            var numbers = values.stream().mapToLong(value -> ((Number) value).longValue());
            return name.equals(CONNECTED) ? numbers.min().orElse(0) : numbers.sum();
        }
        for (Object value : values) {
            if (!value.equals("")) {
                return value;
            }
        }
        return values.get(0);
    }
}
