/**
 * What a link counts, in no engine's words. It uses none of the packages beside it; an engine's
 * shell implements {@link io.speck.link.metrics.LinkMetrics}.
 */
package io.speck.link.metrics;
