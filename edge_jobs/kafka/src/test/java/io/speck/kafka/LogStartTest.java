package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.Until;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReadingRange;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LogStartTest {
    private static final LinkTopic TOPIC = new LinkTopic("link", "id", 1, 1 << 20);
    private static final TopicPartition PARTITION = new TopicPartition("link", 0);
    private static final LinkConfig LINK =
            new LinkConfig(
                    KafkaAddress.parse("kafka://127.0.0.1:1"),
                    "link",
                    "reader",
                    Delivery.EXACTLY_ONCE,
                    10);

    private final MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("none");
    private final Progress progress = new Progress();
    private ReadingRange range = range(LogPosition.NONE, "");

    private static ReadingRange range(LogPosition position, String handedOver) {
        HandOver taken = HandOver.parse(handedOver);
        return new ReadingRange(taken, Until.EVER, position, !position.isNone());
    }

    private static LogPosition position(long offset, int term) {
        return new LogPosition(Map.of("id/0", offset), Map.of("id/0", term));
    }

    private static OffsetAndMetadata at(long offset, Integer term) {
        return new OffsetAndMetadata(offset, Optional.ofNullable(term), "");
    }

    @BeforeEach
    void assign() {
        consumer.assign(List.of(PARTITION));
        holds(10, 50);
    }

    private void holds(long first, long end) {
        consumer.updateBeginningOffsets(Map.of(PARTITION, first));
        consumer.updateEndOffsets(Map.of(PARTITION, end));
    }

    private void commit(long offset, Integer term, String id) {
        String metadata = "{\"v\":1,\"id\":\"" + id + "\"}";
        consumer.commitSync(
                Map.of(
                        PARTITION,
                        new OffsetAndMetadata(offset, Optional.ofNullable(term), metadata)));
    }

    private OffsetAndMetadata find() {
        return new LogStart(LINK, TOPIC, range, progress, consumer, List.of(PARTITION))
                .find(PARTITION);
    }

    @Test
    void aReaderThatHasNoPlaceBeginsAtTheEnd() {
        assertEquals(at(50, null), find());
    }

    @Test
    void itsPlaceIsCommittedWithTheLeaderEpoch() {
        commit(30, 4, "id");
        assertEquals(at(30, 4), find());
        commit(30, 4, "another log");
        assertEquals(at(50, null), find());
    }

    @Test
    void aStateGoesBeforeThePlace() {
        commit(30, 4, "id");
        range = range(position(40, 5), "");
        assertEquals(at(40, 5), find());
    }

    @Test
    void whatWasHandedOverIsNotReadAgain() {
        commit(30, 4, "id");
        range = range(LogPosition.NONE, "id%2F0/0/35");
        assertEquals(at(35, null), find());
        range = range(position(40, 5), "id%2F0/0/35");
        assertEquals(at(40, 5), find());
    }

    @Test
    void whatWasDeletedIsLeftOut() {
        commit(5, 4, "id");
        assertEquals(at(10, null), find());
    }

    /** Without a leader epoch nobody knows where it was cut. */
    @Test
    void aLogThatEndsBeforeThePlaceIsReadFromItsBeginning() {
        commit(60, null, "id");
        assertEquals(at(10, null), find());
    }

    @Test
    void withALeaderEpochTheBrokerIsAskedWhereTheLogWasCut() {
        commit(60, 4, "id");
        assertEquals(at(60, 4), find());
        progress.begin(TOPIC, List.of(at(60, 4)));
        progress.goBack(
                new LogTruncationException(
                        Map.of(PARTITION, 60L), Map.of(PARTITION, at(45, 3))));
        assertEquals(at(45, 3), find());
    }

    @Test
    void whatWasHandedOverMayBeCutAway() {
        range = range(LogPosition.NONE, "id%2F0/0/48");
        progress.begin(TOPIC, List.of(find()));
        progress.goBack(
                new LogTruncationException(
                        Map.of(PARTITION, 48L), Map.of(PARTITION, at(45, 3))));
        assertEquals(at(45, 3), find());
    }

    @Test
    void whereTheBrokerDoesNotKnowItIsReadFromTheBeginning() {
        progress.begin(TOPIC, List.of(at(30, 4)));
        progress.goBack(new LogTruncationException(Map.of(PARTITION, 30L), Map.of()));
        assertEquals(at(10, null), find());
    }

    /** What waits in the inbox comes again: the client had read further than the task. */
    @Test
    void whatTheTaskHasNotReachedIsNoReasonToGoBack() {
        progress.begin(TOPIC, List.of(at(30, 4)));
        progress.goBack(
                new LogTruncationException(
                        Map.of(PARTITION, 60L), Map.of(PARTITION, at(45, 4))));
        assertEquals(at(30, 4), find());
    }

    /** A broker that knows no leader epochs refuses the place itself. */
    @Test
    void aPlaceThatIsRefusedIsLookedAtWithoutItsLeaderEpoch() {
        progress.begin(TOPIC, List.of(at(60, 4)));
        progress.goBack(new OffsetOutOfRangeException(Map.of(PARTITION, 60L)));
        assertEquals(at(10, null), find());
    }

    @Test
    void nothingIsKnownOfAnotherLog() {
        progress.begin(new LinkTopic("link", "another", 1, 1), List.of(at(30, 4)));
        assertNull(progress.next(TOPIC, 0));
        assertEquals(at(50, null), find());
    }

    @Test
    void theTaskGoesOnWhereTheLastConnectionEnded() {
        Progress.Places places = progress.begin(TOPIC, List.of(at(30, 4)));
        places.goTo(0, 42, Optional.of(5));
        assertEquals(at(42, 5), find());
        assertEquals(places, progress.begin(TOPIC, List.of(at(42, 5))));
    }
}
