package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class WriterStartsTest {
    private static final String KEY = "job/link";
    private static final SentNumber START = new SentNumber("p", 7, 10);

    private static SinkMessage message(long epoch, long number) {
        return new SinkMessage(
                ProducerEpoch.of("p", epoch), number, Message.of(new byte[] {1}));
    }

    private static Long findDoubtful(SinkMessage... messages) {
        SinkMessage first = WriterStarts.findDoubtful(KEY, List.of(messages));
        return first == null ? null : first.number();
    }

    @AfterEach
    void close() {
        WriterStarts.remove(KEY, START);
    }

    @Test
    void whatAnOpenWriterHasNumberedNobodyHasSent() {
        WriterStarts.add(KEY, START);
        assertNull(findDoubtful(message(7, 11), message(7, 12)));
        assertNull(findDoubtful());
    }

    @Test
    void whatCameBeforeMayHaveBeenSent() {
        WriterStarts.add(KEY, START);
        assertEquals(9, findDoubtful(message(7, 9), message(7, 10), message(7, 11)));
        assertEquals(11, findDoubtful(message(6, 11)), "of another epoch");
    }

    /** Restored committables are published before the writer is opened. */
    @Test
    void withoutAWriterAllMayHaveBeenSent() {
        assertEquals(11, findDoubtful(message(7, 11)));
        WriterStarts.add(KEY, START);
        WriterStarts.remove(KEY, START);
        assertEquals(11, findDoubtful(message(7, 11)));
    }
}
