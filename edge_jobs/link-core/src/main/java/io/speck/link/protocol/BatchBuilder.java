package io.speck.link.protocol;

import io.airlift.compress.zstd.ZstdCompressor;
import java.util.Arrays;

/** Collects the records of one message. Not thread-safe. */
public final class BatchBuilder {
    private static final int INITIAL_BYTES = 4096;

    private final Batching batching;
    private final ZstdCompressor zstd = new ZstdCompressor();
    private byte[] batch = new byte[INITIAL_BYTES];
    private byte[] compressed = new byte[0];
    private int length;
    private int count;
    private byte[] onlyRecord; // the first one, while it is the only one

    public BatchBuilder(Batching batching) {
        this.batching = batching;
    }

    public boolean isEmpty() {
        return count == 0;
    }

    /** Returns the number of records collected. */
    public int count() {
        return count;
    }

    /** Whether a record still fits into a payload of that size; the first one always does. */
    public boolean hasRoom(int recordBytes, int maxPayloadBytes) {
        return count == 0
                || length + Sizes.lengthOf(recordBytes) + (long) recordBytes
                        <= maxPayloadBytes;
    }

    public void add(byte[] record) {
        onlyRecord = count == 0 ? record : null;
        count++;
        if (!batching.isOn()) {
            return; // it is sent as it is
        }
        reserve(BatchReader.MAX_LENGTH_BYTES + record.length);
        length = BatchReader.putLength(batch, length, record.length);
        System.arraycopy(record, 0, batch, length, record.length);
        length += record.length;
    }

    public boolean isFull() {
        return count >= batching.records();
    }

    /** Builds the message of all records added since the last call; there must be at least one. */
    public Message build() {
        Message message = batching.zstd() ? compress() : null;
        if (message == null) {
            message =
                    count == 1
                            ? Message.of(onlyRecord)
                            : new Message(
                                    Message.Format.BATCH, count, Arrays.copyOf(batch, length));
        }
        onlyRecord = null;
        length = 0;
        count = 0;
        return message;
    }

    /** Returns null when compression would save nothing. */
    private Message compress() {
        if (length > Message.MAX_UNPACKED_BYTES) {
            return null; // a single large record, which readers would not unpack
        }
        int most = zstd.maxCompressedLength(length) + BatchReader.MAX_LENGTH_BYTES;
        if (compressed.length < most) {
            compressed = new byte[most];
        }
        int start = BatchReader.putLength(compressed, 0, length);
        int bytes =
                start
                        + zstd.compress(
                                batch, 0, length, compressed, start, compressed.length - start);
        Message message =
                new Message(Message.Format.ZSTD_BATCH, count, Arrays.copyOf(compressed, bytes));
        int properties = count == 1 ? message.propertyBytes() : 0;
        return bytes + properties < (count == 1 ? onlyRecord.length : length) ? message : null;
    }

    private void reserve(int more) {
        if (length + more > batch.length) {
            batch = Arrays.copyOf(batch, Math.max(length + more, 2 * batch.length));
        }
    }
}
