package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

class StateCompressionTest {
    private static final int INLINE_BYTES = 1 << 20; // most that Flink keeps in its metadata file

    @Test
    void theWindowOfASinkFitsIntoFlinksMetadataFile() throws Exception {
        StringBuilder records = new StringBuilder();
        for (int i = 0; records.length() < 2 * INLINE_BYTES; i++) {
            records.append("{\"sensor\": \"s-%d\", \"n\": %d, \"value\": %f}".formatted(i % 7, i, i * 0.37));
        }
        byte[] state = records.toString().getBytes(StandardCharsets.UTF_8);
        byte[] compressed = StateCompression.compress(state);
        assertTrue(compressed.length < INLINE_BYTES, compressed.length + " bytes");
        assertArrayEquals(state, StateCompression.decompress(compressed));
    }

    @Test
    void whatCannotBeCompressedIsKeptAsItIs() throws Exception {
        Random dice = new Random(1);
        for (int length : new int[] {0, 1, 1000, 16 << 10, 300_000}) {
            byte[] state = new byte[length];
            dice.nextBytes(state);
            byte[] compressed = StateCompression.compress(state);
            assertTrue(compressed.length <= length + Integer.BYTES);
            assertArrayEquals(state, StateCompression.decompress(compressed));
        }
    }

    @Test
    void damagedStateIsRefused() {
        byte[] whole = StateCompression.compress(new byte[100_000]);
        byte[] huge = whole.clone();
        ByteBuffer.wrap(huge).putInt(Integer.MAX_VALUE);
        byte[] negative = whole.clone();
        ByteBuffer.wrap(negative).putInt(-1);
        byte[] longer = whole.clone();
        ByteBuffer.wrap(longer).putInt(100_001);
        byte[] cut = Arrays.copyOf(whole, whole.length / 2);
        for (byte[] damaged : new byte[][] {{}, {0, 0}, huge, negative, longer, cut}) {
            assertThrows(IOException.class, () -> StateCompression.decompress(damaged));
        }
    }
}
