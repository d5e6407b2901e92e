package io.speck.kafka;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * How far a reader's task has polled its log, over all connections: what the next one brings again
 * is left out, with a number or without. The connections' threads begin, the task's thread goes on.
 */
final class Progress {
    /** The offsets up to which the partitions of one log were polled. */
    record Places(String topicId, AtomicLongArray next) {}

    private volatile Places current;

    /** Returns the offset of the next record of a partition; -1: nothing of the log was polled. */
    long next(LinkTopic topic, int partition) {
        Places known = current;
        boolean knows =
                known != null
                        && known.topicId.equals(topic.id())
                        && partition < known.next.length();
        return knows ? known.next.get(partition) : -1;
    }

    /**
     * Begins to read a log over another connection.
     *
     * @param starts by partition
     */
    Places begin(LinkTopic topic, long[] starts) {
        Places known = current;
        AtomicLongArray next = new AtomicLongArray(starts);
        boolean goesOn = known != null && known.topicId.equals(topic.id());
        for (int i = 0; goesOn && i < known.next.length(); i++) {
            goesOn = i < starts.length && starts[i] >= known.next.get(i);
        }
        if (goesOn && known.next.length() == starts.length) {
            return known; // the task may be polling the last connection still
        }
        current = new Places(topic.id(), next);
        return current;
    }
}
