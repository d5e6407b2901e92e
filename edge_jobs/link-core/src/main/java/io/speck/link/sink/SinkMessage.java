package io.speck.link.sink;

import io.speck.link.protocol.BatchReader;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
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

    /** Whether that number, which may be null, says that the broker has it. */
    boolean isCoveredBy(SentNumber sent) {
        return sent != null && epoch() != null && sent.covers(epoch(), lastNumber());
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
