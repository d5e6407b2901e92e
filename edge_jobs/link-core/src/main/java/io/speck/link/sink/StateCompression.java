package io.speck.link.sink;

import io.airlift.compress.MalformedInputException;
import io.airlift.compress.lz4.Lz4Compressor;
import io.airlift.compress.lz4.Lz4Decompressor;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Compresses what a sink keeps in checkpoints, with LZ4.
 *
 * <p>Flink restores the state of an operator byte by byte, each with a system call, if it is in a
 * file of its own: a second for a megabyte, in which the job is silent. Compressed it mostly stays
 * under {@code execution.checkpointing.data-inline-threshold}, and a checkpoint writes less.
 *
 * <p>Format: four bytes, the length before (big-endian), or 0 if it is not compressed; the rest.
 */
final class StateCompression {
    private static final int WORTHWHILE_BYTES = 16 << 10;
    private static final int MAX_RATIO = 255; // of LZ4: a damaged length takes no more memory

    private StateCompression() {}

    static byte[] compress(byte[] state) {
        if (state.length >= WORTHWHILE_BYTES) {
            Lz4Compressor lz4 = new Lz4Compressor();
            byte[] compressed = new byte[lz4.maxCompressedLength(state.length)];
            int length = lz4.compress(state, 0, state.length, compressed, 0, compressed.length);
            if (length < state.length) {
                return join(state.length, compressed, length);
            }
        }
        return join(0, state, state.length);
    }

    /** @throws IOException if the bytes are damaged */
    static byte[] decompress(byte[] bytes) throws IOException {
        int rest = bytes.length - Integer.BYTES;
        if (rest < 0) {
            throw new IOException("cannot read sink state: it has %d bytes".formatted(bytes.length));
        }
        int length = ByteBuffer.wrap(bytes).getInt();
        if (length == 0) {
            return Arrays.copyOfRange(bytes, Integer.BYTES, bytes.length);
        }
        if (length < 0 || length > (long) rest * MAX_RATIO) {
            throw new IOException(
                    "cannot read sink state: %d bytes cannot hold %d".formatted(rest, length));
        }
        byte[] state = new byte[length];
        int read;
        try {
            read = new Lz4Decompressor().decompress(bytes, Integer.BYTES, rest, state, 0, length);
        } catch (MalformedInputException e) {
            throw new IOException("cannot read sink state: its LZ4 block is damaged", e);
        }
        if (read != length) {
            throw new IOException(
                    "cannot read sink state: %d bytes instead of %d".formatted(read, length));
        }
        return state;
    }

    private static byte[] join(int length, byte[] bytes, int count) {
        int size = Integer.BYTES + count;
        return ByteBuffer.allocate(size).putInt(length).put(bytes, 0, count).array();
    }
}
