package io.speck.link.metrics;

/** A count that only grows. */
public interface LinkCounter {
    void inc(long more);

    long getCount();

    default void inc() {
        inc(1);
    }
}
