package io.speck.kafka;

import io.speck.link.protocol.SeenNumbers;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.LinkConfig;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;

/**
 * Finds in a log what a writer has sent: nobody else says it.
 *
 * <p>It reads the end of the log, a longer piece each time, back to a record that was sent no later
 * than the oldest in question. It ends early when the time is over, as it is soon over a slow network
 * where many others write: what was not seen is sent again then.
 */
final class LogTail {
    private static final long[] PIECES = {1000, 10_000, 100_000};
    private static final Duration POLL = Duration.ofMillis(250);
    private static final long PATIENCE_NS = 15_000_000_000L;

    private final Consumer<byte[], byte[]> consumer;
    private final TopicPartition partition;
    private final SentNumber oldest;
    private final LongSupplier clock;
    private final SeenNumbers seen;

    /** @param clock in nanoseconds */
    LogTail(
            Consumer<byte[], byte[]> consumer,
            TopicPartition partition,
            SentNumber oldest,
            LongSupplier clock) {
        this.consumer = consumer;
        this.partition = partition;
        this.oldest = oldest;
        this.clock = clock;
        this.seen = new SeenNumbers(oldest.producer());
    }

    /**
     * Returns what was seen of the writer's numbers.
     *
     * @throws org.apache.kafka.common.KafkaException when the broker cannot be reached, or refuses
     */
    static SeenNumbers read(LinkConfig link, TopicPartition partition, SentNumber oldest) {
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(ClientSettings.ofConsumer(link, false))) {
            return new LogTail(consumer, partition, oldest, System::nanoTime).read();
        }
    }

    SeenNumbers read() {
        consumer.assign(List.of(partition));
        long first = consumer.beginningOffsets(List.of(partition)).get(partition);
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        long deadline = clock.getAsLong() + PATIENCE_NS;
        long upTo = end;
        for (long piece : PIECES) {
            long from = Math.max(first, end - piece);
            boolean isComplete = read(from, upTo, deadline);
            if (!isComplete || from == first || seen.reachBackTo(oldest)) {
                return seen;
            }
            upTo = from;
        }
        return seen;
    }

    /** Returns whether all of a piece could be read. */
    private boolean read(long from, long upTo, long deadline) {
        consumer.seek(partition, from);
        while (consumer.position(partition) < upTo) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    add(record, upTo);
                }
            } catch (OffsetOutOfRangeException e) { // it was deleted meanwhile
                return false;
            }
            if (clock.getAsLong() > deadline) {
                return consumer.position(partition) >= upTo;
            }
        }
        return true;
    }

    private void add(ConsumerRecord<byte[], byte[]> record, long upTo) {
        String stamp = record.offset() < upTo ? LogMessages.stampOf(record) : null;
        if (stamp != null) {
            seen.add(Stamp.parseNumber(stamp));
        }
    }
}
