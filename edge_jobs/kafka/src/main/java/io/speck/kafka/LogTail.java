package io.speck.kafka;

import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.LinkConfig;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Finds in a log what a writer has sent last: nobody else says it. */
final class LogTail {
    private static final long[] PIECES = {1000, 10_000, 100_000};
    private static final Duration POLL = Duration.ofMillis(250);
    private static final long PATIENCE_NS = 15_000_000_000L;

    private LogTail() {}

    /**
     * Reads the end of a log, a longer piece each time, until it meets a record of the writer.
     *
     * @return the number of the last one; null when there is none in the last 100 000 records
     * @throws KafkaException when it cannot be read
     */
    static SentNumber findLast(LinkConfig link, TopicPartition partition) {
        List<String> producers =
                List.of(
                        Stamp.producerOfSink(link.clientId()) + "/",
                        Stamp.producerInPort(link.clientId()) + "/");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(ClientSettings.ofConsumer(link, false))) {
            consumer.assign(List.of(partition));
            long first = consumer.beginningOffsets(List.of(partition)).get(partition);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long upTo = end;
            for (long piece : PIECES) {
                long from = Math.max(first, end - piece);
                SentNumber last = findLast(consumer, partition, from, upTo, producers);
                if (last != null || from == first) {
                    return last;
                }
                upTo = from;
            }
            return null;
        }
    }

    private static SentNumber findLast(
            KafkaConsumer<byte[], byte[]> consumer,
            TopicPartition partition,
            long from,
            long upTo,
            List<String> producers) {
        SentNumber last = null;
        long deadline = System.nanoTime() + PATIENCE_NS;
        consumer.seek(partition, from);
        while (consumer.position(partition) < upTo) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                String stamp = LogMessages.stampOf(record);
                boolean isOwn =
                        stamp != null && producers.stream().anyMatch(stamp::startsWith);
                if (isOwn && record.offset() < upTo) {
                    SentNumber number = Stamp.parseNumber(stamp);
                    last = number == null ? last : number;
                }
            }
            if (System.nanoTime() > deadline) {
                throw new KafkaException("the end of the log cannot be read");
            }
        }
        return last;
    }
}
