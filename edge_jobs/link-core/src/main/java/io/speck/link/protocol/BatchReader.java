package io.speck.link.protocol;

import io.airlift.compress.zstd.ZstdDecompressor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

/** Iterates over the records of a batch. Not thread-safe. */
public final class BatchReader implements Iterator<byte[]> {
    /** The most bytes that the encoded length of a record takes. */
    static final int MAX_LENGTH_BYTES = 5;

    private final byte[] bytes;
    private int position;

    private BatchReader(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Opens a payload and checks all of it: anybody may publish to a topic.
     *
     * @param format any but plain
     * @param count how many records the batch must have; -1: any number
     * @param zstd used by one thread at a time; creating one costs more than decompressing a small
     *     message
     * @throws IllegalArgumentException when it is not what our sinks make
     */
    public static BatchReader open(
            Message.Format format, byte[] payload, int count, ZstdDecompressor zstd) {
        boolean compressed = format == Message.Format.ZSTD_BATCH;
        BatchReader batch = new BatchReader(compressed ? decompress(payload, zstd) : payload);
        int records = batch.countRecords();
        if (records == 0 || (count >= 0 && records != count)) {
            throw new IllegalArgumentException(
                    "cannot read a batch: it has %d records, its stamp says %d"
                            .formatted(records, count));
        }
        return batch;
    }

    /** Returns the records of a message of ours. */
    public static List<byte[]> readAll(Message message) {
        if (message.isPlain()) {
            return List.of(message.payload());
        }
        BatchReader batch =
                open(message.format(), message.payload(), message.count(), new ZstdDecompressor());
        List<byte[]> records = new ArrayList<>(message.count());
        batch.forEachRemaining(records::add);
        return records;
    }

    @Override
    public boolean hasNext() {
        return position < bytes.length;
    }

    @Override
    public byte[] next() {
        int length = readLength();
        byte[] record = Arrays.copyOfRange(bytes, position, position + length);
        position += length;
        return record;
    }

    /**
     * Encodes a length into a buffer.
     *
     * @return the position after it
     */
    static int putLength(byte[] buffer, int start, int length) {
        int end = start;
        int rest = length;
        for (; rest > 0x7f; rest >>>= 7) {
            buffer[end++] = (byte) (rest | 0x80);
        }
        buffer[end++] = (byte) rest;
        return end;
    }

    private int readLength() {
        int value = 0;
        int maxShift = 7 * MAX_LENGTH_BYTES;
        for (int shift = 0; shift < maxShift && position < bytes.length; shift += 7) {
            byte digit = bytes[position++];
            value |= (digit & 0x7f) << shift;
            if (digit >= 0) {
                return value;
            }
        }
        throw new IllegalArgumentException("cannot read a batch: it ends within a length");
    }

    private int countRecords() {
        int count = 0;
        while (position < bytes.length) {
            int length = readLength();
            if (length < 0
                    || length > bytes.length - position
                    || ++count > Message.MAX_RECORDS) {
                throw new IllegalArgumentException(
                        "cannot read a batch: record %d of %d bytes is past its end, or too many"
                                .formatted(count, length));
            }
            position += length;
        }
        position = 0;
        return count;
    }

    private static byte[] decompress(byte[] payload, ZstdDecompressor zstd) {
        BatchReader header = new BatchReader(payload);
        int length = header.readLength();
        if (length < 0 || length > Message.MAX_UNPACKED_BYTES) {
            throw new IllegalArgumentException(
                    "cannot read a batch: it would take %d bytes, the most is %d"
                            .formatted(length, Message.MAX_UNPACKED_BYTES));
        }
        byte[] unpacked = new byte[length];
        int rest = payload.length - header.position;
        try {
            if (zstd.decompress(payload, header.position, rest, unpacked, 0, length) == length) {
                return unpacked;
            }
        } catch (RuntimeException e) { // on damaged input it throws more than it documents
            throw new IllegalArgumentException("cannot read a batch: " + e.getMessage(), e);
        }
        throw new IllegalArgumentException("cannot read a batch: its length is wrong");
    }
}
