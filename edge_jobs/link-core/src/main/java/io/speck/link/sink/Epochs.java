package io.speck.link.sink;

import java.util.Collection;
import java.util.random.RandomGenerator;

/** Chooses the epochs of writers. */
final class Epochs {
    private static final int SPREAD_BITS = 22; // attempts of a restored store have 38 bits
    private static final long FIRST_SPREAD = 1L << (SPREAD_BITS - 1);
    private static final long NEXT_SPREAD = 1L << 14; // small: an attempt has room for many

    private Epochs() {}

    /**
     * Chooses the epoch of a new writer. Unless they wait for a checkpoint, numbers given after the
     * last one may go to other records after a restore, so each start of a writer begins a new
     * epoch: above the restored one, and unlike those of starts whose state was never saved. The
     * latter is left to chance: clocks step back, and a count of the starts would be lost with the
     * engine.
     *
     * @param attempt of the incarnation; newer ones have higher numbers
     */
    static long choose(long attempt, RandomGenerator random, Collection<SinkState> restored) {
        long epoch = (attempt << SPREAD_BITS) + random.nextLong(FIRST_SPREAD);
        for (SinkState state : restored) {
            if (state.epoch() >= epoch) {
                epoch = state.epoch() + 1 + random.nextLong(NEXT_SPREAD);
            }
        }
        return epoch;
    }
}
