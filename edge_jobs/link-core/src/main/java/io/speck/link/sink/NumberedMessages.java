package io.speck.link.sink;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Messages of one epoch without holes between their numbers, as checkpoints hold them.
 *
 * @param first number of the first record
 */
public record NumberedMessages(ProducerEpoch epoch, long first, List<Message> messages) {
    /** The most that a payload takes besides itself. */
    static final int OVERHEAD_BYTES = 4 + 1 + 4;

    private static final Message.Format[] FORMATS = Message.Format.values();
    private static final int MAX_INITIAL_CAPACITY = 1 << 16; // a damaged count takes no memory

    /** Joins messages whose numbers follow each other; keeps their order. */
    static List<NumberedMessages> join(Collection<SinkMessage> messages) {
        List<NumberedMessages> runs = new ArrayList<>();
        SinkMessage previous = null;
        for (SinkMessage message : messages) {
            if (previous == null || !follows(message, previous)) {
                runs.add(
                        new NumberedMessages(
                                message.epoch(), message.number(), new ArrayList<>()));
            }
            runs.get(runs.size() - 1).messages.add(message.message());
            previous = message;
        }
        return runs;
    }

    private static boolean follows(SinkMessage message, SinkMessage previous) {
        return message.number() == previous.lastNumber() + 1
                && message.epoch().equals(previous.epoch());
    }

    List<SinkMessage> toSinkMessages() {
        List<SinkMessage> numbered = new ArrayList<>(messages.size());
        long number = first;
        for (Message message : messages) {
            numbered.add(new SinkMessage(epoch, number, message));
            number += message.count();
        }
        return numbered;
    }

    void write(DataOutput out) throws IOException {
        out.writeUTF(epoch.producer());
        out.writeLong(epoch.epoch());
        out.writeLong(first);
        out.writeInt(messages.size());
        for (Message message : messages) {
            out.writeInt(message.payload().length);
            out.writeByte(message.format().ordinal());
            if (!message.isPlain()) {
                out.writeInt(message.count());
            }
            out.write(message.payload());
        }
    }

    static NumberedMessages read(DataInput in) throws IOException {
        ProducerEpoch epoch = ProducerEpoch.of(in.readUTF(), in.readLong());
        long first = in.readLong();
        int count = in.readInt();
        List<Message> messages = new ArrayList<>(Math.min(count, MAX_INITIAL_CAPACITY));
        for (int i = 0; i < count; i++) {
            byte[] payload = new byte[in.readInt()];
            Message.Format format = FORMATS[in.readByte()];
            int records = format == Message.Format.PLAIN ? 1 : in.readInt();
            in.readFully(payload);
            messages.add(new Message(format, records, payload));
        }
        return new NumberedMessages(epoch, first, messages);
    }

    static void writeAll(List<NumberedMessages> runs, DataOutput out) throws IOException {
        out.writeInt(runs.size());
        for (NumberedMessages run : runs) {
            run.write(out);
        }
    }

    static List<NumberedMessages> readAll(DataInput in) throws IOException {
        int count = in.readInt();
        List<NumberedMessages> runs = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            runs.add(read(in));
        }
        return runs;
    }
}
