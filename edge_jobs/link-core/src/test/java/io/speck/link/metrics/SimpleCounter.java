package io.speck.link.metrics;

import java.util.concurrent.atomic.AtomicLong;

/** Counts for tests. */
public final class SimpleCounter implements LinkCounter {
    private final AtomicLong count = new AtomicLong();

    @Override
    public void inc(long more) {
        count.addAndGet(more);
    }

    @Override
    public long getCount() {
        return count.get();
    }
}
