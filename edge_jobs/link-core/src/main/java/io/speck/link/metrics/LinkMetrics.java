package io.speck.link.metrics;

import java.util.function.Supplier;

/** Where one end of a link reports its counts: an engine's metrics. */
public interface LinkMetrics {
    /** The name of the gauge that says why nothing gets through; speck reads it. */
    String LINK_PROBLEM = "linkProblem";

    /** Returns the engine's own count of the records that a source reads, or a sink sends. */
    LinkCounter records();

    /** Returns the engine's own count of the bytes that a source reads, or a sink sends. */
    LinkCounter bytes();

    /** Returns the count of the records that a sink has left out or lost. */
    LinkCounter failures();

    /** Registers a counter. */
    LinkCounter counter(String name);

    /** Registers a gauge; other threads than the link's read it. */
    <T> void gauge(String name, Supplier<T> value);
}
