package io.speck.link.sink;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;

/**
 * Counts what happens to a sink's records on their way.
 *
 * @param bytesSent of PUBLISH packets, those sent again included
 * @param failures left out, or lost under at_most_once
 * @param recordsResent sent once more after a loss of the connection
 * @param recordsConfirmed not sent once more: the broker had said that it has them
 * @param recordsRefused not taken by the broker at an attempt
 * @param recordsUndeliverable left out: no broker would ever take them
 * @param recordsUnread given up: their link is not the job's any more, and has no reader
 * @param resendWindowCut acknowledged and forgotten too early for a broker that is killed now
 */
record SinkCounters(
        LinkCounter bytesSent,
        LinkCounter failures,
        LinkCounter recordsResent,
        LinkCounter recordsConfirmed,
        LinkCounter recordsRefused,
        LinkCounter recordsUndeliverable,
        LinkCounter recordsUnread,
        LinkCounter resendWindowCut,
        LinkCounter connections) {
    /** Returns how many records were given up that the broker might have taken. */
    long countLost() {
        return failures.getCount() - recordsUndeliverable.getCount() + recordsUnread.getCount();
    }

    static SinkCounters register(LinkMetrics group) {
        return new SinkCounters(
                group.bytes(),
                group.failures(),
                group.counter("recordsResent"),
                group.counter("recordsConfirmed"),
                group.counter("recordsRefused"),
                group.counter("recordsUndeliverable"),
                group.counter("recordsUnread"),
                group.counter("resendWindowCut"),
                group.counter("connections"));
    }
}
