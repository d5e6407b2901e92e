package io.speck.link.sink;

import io.speck.link.protocol.BatchReader;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import io.speck.link.transport.OutgoingMessage;
import java.util.ArrayList;
import java.util.List;

/** A message of a sink, and its place in the {@link ResendWindow}, under whose lock that is. */
final class SinkMessage extends OutgoingMessage {
    /** Whether the window has it. */
    boolean kept;

    /** Whether it is being sent once more. */
    boolean resent;

    /** When it was acknowledged last. */
    long acknowledgedNs;

    SinkMessage(ProducerEpoch epoch, long number, Message message) {
        super(epoch, number, message);
    }

    /** Returns how many records it has. */
    int count() {
        return message().count();
    }

    /** Returns the number of its last record; null: it has none. */
    SentNumber last() {
        return epoch() == null ? null : SentNumber.of(epoch(), lastNumber());
    }

    /** Whether the broker has it, by its word, which may be null. */
    boolean isCoveredBy(SentRecords sent) {
        return sent != null && epoch() != null && sent.covers(epoch(), number(), lastNumber());
    }

    /** Whether the broker has it or a later one of its epoch, by its word, which may be null. */
    boolean isReachedBy(SentRecords sent) {
        return sent != null && epoch() != null && sent.reaches(epoch(), lastNumber());
    }

    /** Returns the same records under the same numbers, each in a message of its own. */
    List<SinkMessage> split() {
        List<SinkMessage> messages = new ArrayList<>(count());
        long next = number();
        for (byte[] record : BatchReader.readAll(message())) {
            messages.add(new SinkMessage(epoch(), next++, Message.of(record)));
        }
        return messages;
    }
}
