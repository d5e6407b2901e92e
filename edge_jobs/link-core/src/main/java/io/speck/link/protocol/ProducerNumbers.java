package io.speck.link.protocol;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The numbers taken from one producer, in the last {@value #MAX_EPOCHS} of its epochs that were
 * met. Not thread-safe.
 */
final class ProducerNumbers {
    static final int MAX_EPOCHS = 4;

    /** In the order in which the epochs were met: they need not rise. */
    private final LinkedHashMap<Long, NumberRanges> epochs = new LinkedHashMap<>();

    /** Nothing was heard of the producer on this link: a new epoch may have begun without us. */
    private boolean unheard = true;

    ProducerNumbers copy() {
        ProducerNumbers copy = new ProducerNumbers();
        copy.unheard = unheard;
        epochs.forEach((epoch, ranges) -> copy.epochs.put(epoch, ranges.copy()));
        return copy;
    }

    Map<Long, NumberRanges> epochs() {
        return Collections.unmodifiableMap(epochs);
    }

    /** A message of the producer came over this link. */
    void markHeard() {
        unheard = false;
    }

    /** The reader has another link now; see {@link NumberRanges#leave}. */
    void leaveLink() {
        unheard = true;
        epochs.values().forEach(NumberRanges::leave);
    }

    /** Returns how many numbers are missing in the epochs that are kept. */
    long missing() {
        return epochs.values().stream().mapToLong(NumberRanges::missing).sum();
    }

    int rangesAbove() {
        return epochs.values().stream().mapToInt(NumberRanges::rangesAbove).sum();
    }

    /** The ranges of an epoch, and the holes of the one that was dropped for it. */
    record Place(NumberRanges ranges, long dropped) {}

    /** Finds an epoch from which a message has come, or adds it as the newest. */
    Place findOrAdd(long epoch) {
        NumberRanges known = epochs.get(epoch);
        if (known != null) {
            return new Place(known, 0);
        }
        NumberRanges ranges = new NumberRanges();
        if (!unheard && epochs.keySet().stream().allMatch(earlier -> earlier < epoch)) {
            ranges.startAtZero();
        }
        long dropped = dropOldestIfFull();
        epochs.put(epoch, ranges);
        return new Place(ranges, dropped);
    }

    /**
     * Finds an epoch that is handed over. A new one is put before the first that is higher: this
     * reader may have met others since.
     *
     * @param after the epoch handed over before this one, which was met earlier; null: none
     * @return null when all epochs that are kept are newer
     */
    Place findOrInsert(long epoch, Long after) {
        NumberRanges known = epochs.get(epoch);
        if (known != null) {
            return new Place(known, 0);
        }
        Map<Long, NumberRanges> newer = new LinkedHashMap<>();
        boolean passed = after == null;
        for (Map.Entry<Long, NumberRanges> other : epochs.entrySet()) {
            if (passed && (!newer.isEmpty() || other.getKey() > epoch)) {
                newer.put(other.getKey(), other.getValue());
            }
            passed |= other.getKey().equals(after);
        }
        if (newer.size() == MAX_EPOCHS) {
            return null;
        }
        NumberRanges ranges = new NumberRanges();
        long dropped = dropOldestIfFull();
        epochs.keySet().removeAll(newer.keySet());
        epochs.put(epoch, ranges);
        epochs.putAll(newer);
        return new Place(ranges, dropped);
    }

    /** Makes room for another epoch; returns how many numbers were missing in the dropped one. */
    private long dropOldestIfFull() {
        if (epochs.size() < MAX_EPOCHS) {
            return 0;
        }
        Iterator<NumberRanges> oldest = epochs.values().iterator();
        long missing = oldest.next().missing();
        oldest.remove();
        return missing;
    }

    void write(DataOutput out) throws IOException {
        out.writeBoolean(unheard);
        out.writeInt(epochs.size());
        for (Map.Entry<Long, NumberRanges> epoch : epochs.entrySet()) {
            out.writeLong(epoch.getKey());
            epoch.getValue().write(out);
        }
    }

    static ProducerNumbers read(DataInput in) throws IOException {
        ProducerNumbers numbers = new ProducerNumbers();
        numbers.unheard = in.readBoolean();
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            numbers.epochs.put(in.readLong(), NumberRanges.read(in));
        }
        return numbers;
    }
}
