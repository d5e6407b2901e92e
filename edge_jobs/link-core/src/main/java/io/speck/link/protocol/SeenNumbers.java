package io.speck.link.protocol;

import java.util.Map;
import java.util.TreeMap;

/**
 * The numbers of one producer that were seen in a piece of a log. What was not seen may lie before
 * the piece; or it is missing, also where later numbers were seen.
 */
public final class SeenNumbers implements SentRecords {
    private final String producer;
    private final TreeMap<Long, TreeMap<Long, Long>> epochs = new TreeMap<>(); // last by first

    public SeenNumbers(String producer) {
        this.producer = producer;
    }

    /** Adds the number of a stamp, which may be null, or another producer's. */
    public void add(SentNumber seen) {
        if (seen == null || !seen.producer().equals(producer)) {
            return;
        }
        TreeMap<Long, Long> ranges = epochs.computeIfAbsent(seen.epoch(), it -> new TreeMap<>());
        long first = seen.number();
        long last = first;
        Map.Entry<Long, Long> before = ranges.floorEntry(first);
        if (before != null && before.getValue() >= first) {
            return;
        }
        if (before != null && before.getValue() == first - 1) {
            first = before.getKey();
        }
        Long behind = ranges.remove(last + 1);
        ranges.put(first, behind == null ? last : behind);
    }

    public boolean isEmpty() {
        return epochs.isEmpty();
    }

    /** Whether a record was seen that was sent no later than that one. */
    public boolean reachBackTo(SentNumber oldest) {
        TreeMap<Long, Long> ranges = epochs.get(oldest.epoch());
        return epochs.lowerKey(oldest.epoch()) != null
                || (ranges != null && ranges.firstKey() <= oldest.number());
    }

    @Override
    public boolean covers(ProducerEpoch epoch, long first, long last) {
        TreeMap<Long, Long> ranges = find(epoch);
        Map.Entry<Long, Long> range = ranges == null ? null : ranges.floorEntry(first);
        return range != null && range.getValue() >= last;
    }

    @Override
    public boolean reaches(ProducerEpoch epoch, long number) {
        TreeMap<Long, Long> ranges = find(epoch);
        return ranges != null && ranges.lastEntry().getValue() >= number;
    }

    @Override
    public boolean mayHaveGaps() {
        return true;
    }

    private TreeMap<Long, Long> find(ProducerEpoch epoch) {
        return epoch.producer().equals(producer) ? epochs.get(epoch.epoch()) : null;
    }
}
