package io.speck.kafka;

import io.speck.link.protocol.HandOver;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReadingRange;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Decides from which record on a reader reads its log.
 *
 * <p>That is where its task has come to; at its first connection where its state ends, or else the
 * place that the broker keeps for it. If there is none, it has been lost (or was never made): then
 * the end of the log, for a reader that has never read it; the beginning for one that has, since
 * nothing tells what it has not seen, and repeats are recognised by their numbers. It never begins
 * before what an earlier reader has taken.
 *
 * <p>Where the log has another extent than all of them think, it was cut, or old records were
 * deleted: it begins with the first that there is. But if the leader epoch of the last record is
 * known, Kafka's client asks the broker where a log was cut, also one that has grown past the place
 * since: then it begins there, see {@link Progress#goBack}.
 */
final class LogStart {
    private static final Logger LOG = LoggerFactory.getLogger(LogStart.class);

    private final LinkConfig link;
    private final LinkTopic topic;
    private final ReadingRange range;
    private final Progress progress;
    private final Map<TopicPartition, OffsetAndMetadata> committed;
    private final Map<TopicPartition, Long> first;
    private final Map<TopicPartition, Long> end;

    LogStart(
            LinkConfig link,
            LinkTopic topic,
            ReadingRange range,
            Progress progress,
            Consumer<?, ?> consumer,
            List<TopicPartition> partitions) {
        this.link = link;
        this.topic = topic;
        this.range = range;
        this.progress = progress;
        this.committed = findCommitted(consumer, partitions);
        this.first = consumer.beginningOffsets(partitions);
        this.end = consumer.endOffsets(partitions);
    }

    /** The broker may keep places in a log that was of the same name. */
    private Map<TopicPartition, OffsetAndMetadata> findCommitted(
            Consumer<?, ?> consumer, List<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> known = new HashMap<>();
        consumer.committed(Set.copyOf(partitions))
                .forEach(
                        (partition, place) -> {
                            if (place != null && TakenMetadata.isOf(place.metadata(), topic.id())) {
                                known.put(partition, place);
                            }
                        });
        return known;
    }

    /** Whether the broker has kept a place for the reader. */
    boolean isPlaceKept() {
        return !committed.isEmpty();
    }

    /** Returns the place of the first record to read of a partition. */
    OffsetAndMetadata find(TopicPartition partition) {
        OffsetAndMetadata start = findWanted(partition);
        boolean isAsked = start.leaderEpoch().isPresent();
        if (start.offset() >= first.get(partition)
                && (isAsked || start.offset() <= end.get(partition))) {
            return start;
        }
        LOG.error(
                "{} has records {} to {} in partition {}, the reader {} was at {}: it goes on with"
                        + " the first that there is",
                link,
                first.get(partition),
                end.get(partition),
                partition.partition(),
                link.clientId(),
                start.offset());
        return new OffsetAndMetadata(first.get(partition));
    }

    private OffsetAndMetadata findWanted(TopicPartition partition) {
        OffsetAndMetadata polled = progress.next(topic, partition.partition());
        if (polled != null) { // from what was handed over on, unless the log was cut since
            return polled;
        }
        OffsetAndMetadata own = findFirst(partition);
        String series = topic.series(partition.partition());
        long handedOver = range.handOver().findPosition(series, 0);
        return own.offset() >= handedOver ? own : new OffsetAndMetadata(handedOver);
    }

    /** Returns where the reader begins whose task has polled nothing yet. */
    private OffsetAndMetadata findFirst(TopicPartition partition) {
        String series = topic.series(partition.partition());
        Long restored = range.position().offsets().get(series);
        if (restored != null) {
            Integer term = range.position().terms().get(series);
            return new OffsetAndMetadata(restored, Optional.ofNullable(term), "");
        }
        OffsetAndMetadata place = committed.get(partition);
        if (place != null) {
            return new OffsetAndMetadata(place.offset(), place.leaderEpoch(), "");
        }
        boolean isKnown = isPlaceKept() || range.readBefore(); // but this part of it is not
        boolean isHandedOver = !range.handOver().equals(HandOver.NONE);
        boolean hasSeenSome = isKnown || isHandedOver;
        return new OffsetAndMetadata(hasSeenSome ? first.get(partition) : end.get(partition));
    }
}
