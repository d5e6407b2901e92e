package io.speck.link.source;

import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.TakenNumbers;
import io.speck.link.transport.ReaderConnection;
import java.util.ArrayDeque;

/** The checkpoints that are not complete yet, and what each covers. Not thread-safe. */
final class PendingCheckpoints {
    /**
     * What a checkpoint covers.
     *
     * @param connection over which messages came; null: none yet
     * @param arrivals how many messages of that connection to acknowledge
     * @param taken the numbers to announce
     * @param position up to where the log was read, at a broker that keeps one
     * @param mark the last one that was taken; null: none
     * @param takenBytes of all records taken since the start
     */
    record Coverage(
            long checkpoint,
            ReaderConnection connection,
            long arrivals,
            TakenNumbers taken,
            LogPosition position,
            String mark,
            long takenBytes) {}

    private final ArrayDeque<Coverage> pending = new ArrayDeque<>(); // rising checkpoints

    void add(Coverage coverage) {
        pending.add(coverage);
    }

    int size() {
        return pending.size();
    }

    /**
     * A checkpoint is complete. Those before it never will be, and it covers what they do.
     *
     * @return what it covers; null: nothing that an earlier one did not
     */
    Coverage complete(long checkpoint) {
        Coverage last = null;
        while (!pending.isEmpty() && pending.peek().checkpoint <= checkpoint) {
            last = pending.poll();
        }
        return last;
    }

    /** A checkpoint will never be complete; what it covers, a later one does. */
    void abort(long checkpoint) {
        pending.removeIf(coverage -> coverage.checkpoint == checkpoint);
    }
}
