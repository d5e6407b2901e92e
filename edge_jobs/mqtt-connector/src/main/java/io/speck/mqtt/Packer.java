package io.speck.mqtt;

import io.airlift.compress.zstd.ZstdCompressor;
import java.util.Arrays;

/** Gathers records for one message. Not thread-safe. */
final class Packer {
    private static final int FIRST_BYTES = 4096;

    private final Batching batching;
    private final ZstdCompressor zstd = new ZstdCompressor();
    private byte[] frames = new byte[FIRST_BYTES];
    private byte[] packed = new byte[0];
    private int length;
    private int count;
    private byte[] only; // the first one, while it is the only one

    Packer(Batching batching) {
        this.batching = batching;
    }

    boolean isEmpty() {
        return count == 0;
    }

    int count() {
        return count;
    }

    /** Whether there is room for a record in a payload of so many bytes; the first has it always. */
    boolean hasRoom(int recordBytes, int mostBytes) {
        return count == 0
                || length + PacketSize.lengthOf(recordBytes) + (long) recordBytes <= mostBytes;
    }

    void add(byte[] record) {
        only = count == 0 ? record : null;
        count++;
        if (!batching.isOn()) {
            return; // it goes as it is
        }
        reserve(Frames.MOST_LENGTH_BYTES + record.length);
        length = Frames.putNumber(frames, length, record.length);
        System.arraycopy(record, 0, frames, length, record.length);
        length += record.length;
    }

    boolean isFull() {
        return count >= batching.records();
    }

    /** What was added since the last call; there must be something. */
    Parcel take() {
        Parcel parcel = batching.zstd() ? compressed() : null;
        if (parcel == null) {
            parcel =
                    count == 1
                            ? Parcel.of(only)
                            : new Parcel(
                                    Parcel.Form.FRAMED, count, Arrays.copyOf(frames, length));
        }
        only = null;
        length = 0;
        count = 0;
        return parcel;
    }

    /** Null when it would save nothing. */
    private Parcel compressed() {
        if (length > Parcel.MOST_BYTES) {
            return null; // a single large record, which readers would not unpack
        }
        int most = zstd.maxCompressedLength(length) + Frames.MOST_LENGTH_BYTES;
        if (packed.length < most) {
            packed = new byte[most];
        }
        int at = Frames.putNumber(packed, 0, length);
        int bytes = at + zstd.compress(frames, 0, length, packed, at, packed.length - at);
        Parcel parcel =
                new Parcel(Parcel.Form.ZSTD, count, Arrays.copyOf(packed, bytes));
        int besides = count == 1 ? parcel.propertyBytes() : 0;
        return bytes + besides < (count == 1 ? only.length : length) ? parcel : null;
    }

    private void reserve(int more) {
        if (length + more > frames.length) {
            frames = Arrays.copyOf(frames, Math.max(length + more, 2 * frames.length));
        }
    }
}
