package io.speck.kafka;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;

/**
 * How far a reader's task has polled its log, over all connections: what the next one brings again
 * is left out, with a number or without. The connections' threads begin and go back, the task's
 * thread goes on.
 */
final class Progress {
    private static final int UNKNOWN = -1;

    /**
     * The offsets up to which the partitions of one log were polled.
     *
     * @param terms leader epochs of the last records; {@link #UNKNOWN} for some
     */
    record Places(String topicId, AtomicLongArray next, AtomicIntegerArray terms) {
        private static Places of(String topicId, List<OffsetAndMetadata> starts) {
            Places places =
                    new Places(
                            topicId,
                            new AtomicLongArray(starts.size()),
                            new AtomicIntegerArray(starts.size()));
            for (int i = 0; i < starts.size(); i++) {
                OffsetAndMetadata start = starts.get(i);
                places.goTo(i, start.offset(), start.leaderEpoch());
            }
            return places;
        }

        /** The term first: who reads both in the other order gets none that is too old. */
        void goTo(int partition, long offset, Optional<Integer> term) {
            terms.lazySet(partition, term.orElse(UNKNOWN));
            next.lazySet(partition, offset);
        }

        OffsetAndMetadata find(int partition) {
            long offset = next.get(partition);
            int term = terms.get(partition);
            return new OffsetAndMetadata(
                    offset, term == UNKNOWN ? Optional.empty() : Optional.of(term), "");
        }
    }

    private volatile Places current;

    /** Returns the place of the next record of a partition; null: nothing of the log was polled. */
    OffsetAndMetadata next(LinkTopic topic, int partition) {
        Places known = current;
        boolean knows =
                known != null
                        && known.topicId.equals(topic.id())
                        && partition < known.next.length();
        return knows ? known.find(partition) : null;
    }

    /**
     * Begins to read a log over another connection.
     *
     * @param starts by partition
     */
    Places begin(LinkTopic topic, List<OffsetAndMetadata> starts) {
        Places known = current;
        boolean goesOn = known != null && known.topicId.equals(topic.id());
        for (int i = 0; goesOn && i < known.next.length(); i++) {
            goesOn = i < starts.size() && starts.get(i).offset() >= known.next.get(i);
        }
        if (goesOn && known.next.length() == starts.size()) {
            return known; // the task may be polling the last connection still
        }
        current = Places.of(topic.id(), starts);
        return current;
    }

    /**
     * A log does not have what was to be read next. If it was cut, the next connection begins where
     * it was: what comes from there on has not been read, whatever its offsets. Where that cannot be
     * found out it begins at the beginning. What is out of range for another reason has no term any
     * more, so that {@link LogStart} decides by the log's extent.
     */
    void goBack(OffsetOutOfRangeException problem) {
        Places known = current;
        Places back =
                Places.of(
                        known.topicId,
                        IntStream.range(0, known.next.length())
                                .mapToObj(known::find)
                                .toList());
        for (TopicPartition partition : problem.offsetOutOfRangePartitions().keySet()) {
            int i = partition.partition();
            long next = known.next.get(i);
            if (problem instanceof LogTruncationException cut) {
                Map<TopicPartition, OffsetAndMetadata> ends = cut.divergentOffsets();
                OffsetAndMetadata end = ends.getOrDefault(partition, new OffsetAndMetadata(0));
                if (end.offset() < next) {
                    back.goTo(i, end.offset(), end.leaderEpoch());
                }
            } else {
                back.goTo(i, next, Optional.empty());
            }
        }
        current = back;
    }
}
