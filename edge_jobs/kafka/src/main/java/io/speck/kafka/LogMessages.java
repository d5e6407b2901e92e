package io.speck.kafka;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.IncomingMessages;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** Records of Kafka: each is one record of ours. */
final class LogMessages implements IncomingMessages {
    static final LogMessages INSTANCE = new LogMessages();
    private static final byte[] NOTHING = new byte[0];
    private static final int OVERHEAD_BYTES = 8; // length, attributes, times and offsets, about

    private LogMessages() {}

    @SuppressWarnings("unchecked")
    static ConsumerRecord<byte[], byte[]> recordOf(Object message) {
        return (ConsumerRecord<byte[], byte[]>) message;
    }

    /** Returns the stamp of a record, or null. */
    static String stampOf(ConsumerRecord<byte[], byte[]> record) {
        Header header = record.headers().lastHeader(Stamp.PROPERTY);
        return header == null || header.value() == null
                ? null
                : new String(header.value(), StandardCharsets.UTF_8);
    }

    @Override
    public byte[] payloadOf(Object message) {
        byte[] value = recordOf(message).value();
        return value == null ? NOTHING : value;
    }

    @Override
    public int sizeOf(Object message) {
        return Math.max(0, recordOf(message).serializedValueSize());
    }

    @Override
    public int packetSizeOf(Object message) {
        ConsumerRecord<byte[], byte[]> record = recordOf(message);
        int bytes = OVERHEAD_BYTES + sizeOf(message) + Math.max(0, record.serializedKeySize());
        for (Header header : record.headers()) {
            bytes += header.key().length() + (header.value() == null ? 0 : header.value().length);
        }
        return bytes;
    }

    @Override
    public String stampOf(Object message) {
        return stampOf(recordOf(message));
    }

    @Override
    public Message.Format formatOf(Object message) {
        return Message.Format.PLAIN;
    }

    @Override
    public boolean isMark(Object message) {
        return false;
    }

    @Override
    public boolean isAcknowledged(Object message) {
        return true;
    }
}
