package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SeenNumbers;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.Stamp;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

class LogTailTest {
    private static final TopicPartition PARTITION = new TopicPartition("link", 0);
    private static final ProducerEpoch EPOCH = ProducerEpoch.of("own", 7);
    private static final long SECOND = 1_000_000_000L;

    private final MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("none");
    private long end;
    private int looks; // at the clock
    private long nowNs;

    /** Records follow when it is read. */
    private SeenNumbers read(long oldest, Runnable log) {
        consumer.updateBeginningOffsets(Map.of(PARTITION, 0L));
        consumer.schedulePollTask(log);
        consumer.updateEndOffsets(Map.of(PARTITION, end));
        SentNumber number = new SentNumber("own", 7, oldest);
        return new LogTail(consumer, PARTITION, number, this::tellTime).read();
    }

    private long tellTime() {
        looks++;
        return nowNs;
    }

    private void add(long offset, String stamp) {
        ConsumerRecord<byte[], byte[]> record =
                new ConsumerRecord<>(PARTITION.topic(), 0, offset, null, new byte[1]);
        if (stamp != null) {
            record.headers().add(Stamp.PROPERTY, stamp.getBytes(StandardCharsets.UTF_8));
        }
        consumer.addRecord(record);
    }

    /** Adds own numbers, from an offset on. */
    private void addOwn(long offset, long first, long last) {
        for (long number = first; number <= last; number++) {
            add(offset + number - first, "own/7/" + number);
        }
    }

    private void addOthers(long first, long last) {
        for (long offset = first; offset < last; offset++) {
            add(offset, offset % 2 == 0 ? "other/7/" + offset : null);
        }
    }

    @Test
    void seesTheNumbersOfTheWriterAlone() {
        end = 60;
        SeenNumbers seen =
                read(
                        1,
                        () -> {
                            addOthers(0, 10);
                            addOwn(10, 1, 40);
                            addOthers(50, 60);
                        });
        assertTrue(seen.covers(EPOCH, 1, 40));
        assertFalse(seen.covers(EPOCH, 41, 41));
    }

    /** The broker has refused 21 to 50, and taken what came after. */
    @Test
    void laterNumbersProveNothingOfThoseInAHole() {
        end = 70;
        SeenNumbers seen =
                read(
                        1,
                        () -> {
                            addOwn(0, 1, 20);
                            addOwn(20, 51, 100);
                        });
        assertTrue(seen.covers(EPOCH, 1, 20));
        assertFalse(seen.covers(EPOCH, 21, 21));
        assertFalse(seen.covers(EPOCH, 50, 50));
        assertTrue(seen.covers(EPOCH, 51, 100));
    }

    @Test
    void readsBackToTheOldestInQuestion() {
        end = 3000;
        assertTrue(read(500, () -> addOwn(0, 1, 3000)).covers(EPOCH, 500, 3000));
    }

    @Test
    void readsNoFurtherThanThat() {
        end = 3000;
        SeenNumbers seen = read(2500, () -> addOwn(0, 1, 3000));
        assertTrue(seen.covers(EPOCH, 2001, 3000));
        assertFalse(seen.covers(EPOCH, 2000, 2000));
    }

    @Test
    void readsALinkOfManyToItsBeginning() {
        end = 12_000;
        assertTrue(read(1, () -> addOthers(0, end)).isEmpty());
    }

    /** Over a slow network: the connection would end, and the next one begin anew, for ever. */
    @Test
    void whatDoesNotComeInTimeIsNotKnown() {
        end = 12_000;
        SeenNumbers seen =
                read(
                        100,
                        () -> {
                            addOthers(11_000, 11_900);
                            addOwn(11_900, 101, 200);
                            nowNs += 16 * SECOND; // and the next piece does not come at all
                        });
        assertTrue(seen.covers(EPOCH, 101, 200));
        assertFalse(seen.covers(EPOCH, 100, 100));
        assertEquals(3, looks, "one at the beginning, one after each piece's only poll");
    }

    @Test
    void whatIsDeletedMeanwhileIsNotKnown() {
        end = 10;
        SeenNumbers seen =
                read(1, () -> {
                    throw new OffsetOutOfRangeException(Map.of(PARTITION, 0L));
                });
        assertTrue(seen.isEmpty());
    }
}
