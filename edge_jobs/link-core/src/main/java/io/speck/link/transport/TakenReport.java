package io.speck.link.transport;

import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.TakenNumbers;

/**
 * What a reader says of itself at a complete checkpoint.
 *
 * @param atMs when, in milliseconds since 1970
 * @param position up to where the log was read, at a broker that keeps one
 * @param dropped how many messages were dropped so far, under at_most_once
 * @param mark the last one that came through the session; null: none
 */
public record TakenReport(
        long atMs,
        long checkpoint,
        TakenNumbers taken,
        LogPosition position,
        long dropped,
        String mark) {
    /** Returns all of it as JSON, with the numbers of each producer. */
    public String toJson() {
        return taken.toJson(atMs, checkpoint, dropped, mark);
    }
}
