package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class SendQueueTest {
    private static final int BYTES = 100;

    private final SendQueue queue = new SendQueue();

    private static SinkMessage message(long number) {
        return new SinkMessage(
                ProducerEpoch.of("p", 7), number, Message.of(new byte[BYTES]));
    }

    private void send(int count) {
        for (int i = 0; i < count; i++) {
            queue.addSent(queue.takeFirst());
        }
    }

    private List<Long> takeAll() {
        List<Long> numbers = new ArrayList<>();
        for (SinkMessage next; (next = queue.takeFirst()) != null; ) {
            numbers.add(next.number());
        }
        return numbers;
    }

    @Test
    void whatWasSentOrRefusedKeepsItsPlaceBeforeWhatWaits() {
        for (int i = 1; i <= 6; i++) {
            queue.add(message(i));
        }
        send(4);
        for (int i = 0; i < 2; i++) {
            queue.addRefused(queue.firstSent());
            queue.removeFirstSent();
        }
        assertEquals(6, queue.size());
        assertEquals(1, queue.firstRefused().number());
        queue.requeueSent();
        queue.requeueRefused();
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L, 6L), takeAll());
        assertFalse(queue.hasRefused());
    }

    @Test
    void countsBytesUntilAMessageIsSettled() {
        queue.add(message(1));
        queue.add(message(2));
        send(2);
        assertEquals(2 * BYTES, queue.bytes());
        queue.settle(queue.firstSent());
        queue.removeFirstSent();
        assertEquals(BYTES, queue.bytes());
        queue.clearSent();
        assertEquals(0, queue.bytes());
        assertEquals(0, queue.size());
        assertNull(queue.firstSent());
    }

    @Test
    void whatIsPutFirstStaysInOrder() {
        queue.add(message(9));
        queue.addFirst(List.of(message(1), message(2)));
        assertEquals(3 * BYTES, queue.bytes());
        assertEquals(List.of(1L, 2L, 9L), takeAll());
    }

    @Test
    void whatTheResendWindowHasIsRemovedOnce() {
        SinkMessage kept = message(1);
        kept.kept = true;
        queue.add(kept);
        queue.add(message(2));
        queue.removeKept();
        assertEquals(BYTES, queue.bytes());
        assertEquals(List.of(2L), takeAll());
    }

    @Test
    void countsTheRecordsOfBatches() {
        queue.add(
                new SinkMessage(
                        ProducerEpoch.of("p", 7),
                        1,
                        new Message(Message.Format.BATCH, 30, new byte[BYTES])));
        queue.add(message(31));
        send(1);
        assertEquals(30, queue.countSentRecords());
        assertEquals(31, queue.countRecords());
        assertTrue(queue.hasWaiting());
    }
}
