package io.speck.mqtt;

import io.airlift.compress.zstd.ZstdDecompressor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The records of one message, one after another. Not thread-safe. */
final class Frames {
    /** What the length of a record takes at most. */
    static final int MOST_LENGTH_BYTES = 5;

    private final byte[] bytes;
    private int at;

    private Frames(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Opens a payload and looks it through: anybody may publish to a topic.
     *
     * @param form not plain
     * @param count how many records it must have; -1: any number
     * @param zstd for one thread at a time; making one costs more than unpacking a small message
     * @throws IllegalArgumentException when it is not what our sinks make
     */
    static Frames of(Parcel.Form form, byte[] payload, int count, ZstdDecompressor zstd) {
        Frames frames = new Frames(form == Parcel.Form.ZSTD ? unpack(payload, zstd) : payload);
        int found = frames.countAll();
        if (found == 0 || (count >= 0 && found != count)) {
            throw new IllegalArgumentException(
                    "cannot read a batch: it has %d records, its stamp says %d"
                            .formatted(found, count));
        }
        return frames;
    }

    static List<byte[]> all(Parcel parcel) {
        if (parcel.isPlain()) {
            return List.of(parcel.payload());
        }
        Frames frames =
                of(parcel.form(), parcel.payload(), parcel.count(), new ZstdDecompressor());
        List<byte[]> records = new ArrayList<>(parcel.count());
        while (frames.hasNext()) {
            records.add(frames.next());
        }
        return records;
    }

    boolean hasNext() {
        return at < bytes.length;
    }

    byte[] next() {
        int length = number();
        byte[] record = Arrays.copyOfRange(bytes, at, at + length);
        at += length;
        return record;
    }

    /** @return where it ends */
    static int putNumber(byte[] to, int from, int number) {
        int end = from;
        int rest = number;
        for (; rest > 0x7f; rest >>>= 7) {
            to[end++] = (byte) (rest | 0x80);
        }
        to[end++] = (byte) rest;
        return end;
    }

    private int number() {
        int value = 0;
        for (int shift = 0; shift < 7 * MOST_LENGTH_BYTES && at < bytes.length; shift += 7) {
            byte digit = bytes[at++];
            value |= (digit & 0x7f) << shift;
            if (digit >= 0) {
                return value;
            }
        }
        throw new IllegalArgumentException("cannot read a batch: it ends within a length");
    }

    private int countAll() {
        int count = 0;
        while (at < bytes.length) {
            int length = number();
            if (length < 0 || length > bytes.length - at || ++count > Parcel.MOST_RECORDS) {
                throw new IllegalArgumentException(
                        "cannot read a batch: record %d of %d bytes is past its end, or too many"
                                .formatted(count, length));
            }
            at += length;
        }
        at = 0;
        return count;
    }

    private static byte[] unpack(byte[] payload, ZstdDecompressor zstd) {
        Frames packed = new Frames(payload);
        int length = packed.number();
        if (length < 0 || length > Parcel.MOST_BYTES) {
            throw new IllegalArgumentException(
                    "cannot read a batch: it would take %d bytes, the most is %d"
                            .formatted(length, Parcel.MOST_BYTES));
        }
        byte[] unpacked = new byte[length];
        int rest = payload.length - packed.at;
        try {
            int done = zstd.decompress(payload, packed.at, rest, unpacked, 0, length);
            if (done == length) {
                return unpacked;
            }
        } catch (RuntimeException e) { // damage makes it throw more than it says
            throw new IllegalArgumentException("cannot read a batch: " + e.getMessage(), e);
        }
        throw new IllegalArgumentException("cannot read a batch: its length is wrong");
    }
}
