package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.airlift.compress.zstd.ZstdDecompressor;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

public class BatchBuilderTest {
    private static BatchBuilder builder(boolean zstd) {
        return new BatchBuilder(new Batching(Message.MAX_RECORDS, 0, zstd));
    }

    static Message pack(boolean zstd, List<byte[]> records) {
        BatchBuilder builder = builder(zstd);
        records.forEach(builder::add);
        return builder.build();
    }

    private static List<byte[]> alike(int count) {
        List<byte[]> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String text = "{\"id\": %d, \"stream\": \"A1\", \"sensor\": \"A1-0%d\"}".formatted(i, i % 9);
            records.add(text.getBytes(StandardCharsets.UTF_8));
        }
        return records;
    }

    private static void assertSame(List<byte[]> expected, List<byte[]> actual) {
        assertEquals(expected.size(), actual.size());
        for (int i = 0; i < expected.size(); i++) {
            assertArrayEquals(expected.get(i), actual.get(i), "record " + i);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whatGoesInComesOutWhateverItsLength(boolean zstd) {
        Random random = new Random(7);
        for (int round = 0; round < 100; round++) {
            List<byte[]> records = new ArrayList<>();
            for (int i = 0; i <= random.nextInt(200); i++) {
                byte[] record = new byte[random.nextInt(random.nextInt(3) == 0 ? 20_000 : 140)];
                if (random.nextBoolean()) {
                    random.nextBytes(record);
                }
                records.add(record);
            }
            assertSame(records, BatchReader.readAll(pack(zstd, records)));
        }
    }

    @Test
    void oneRecordAloneGoesAsItIs() {
        byte[] record = {1, 2, 3};
        assertTrue(pack(false, List.of(record)).isPlain());
        assertTrue(pack(true, List.of(record)).isPlain(), "it would only grow");
        byte[] text = "speed ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        Message smaller = pack(true, List.of(text));
        assertEquals(Message.Format.ZSTD_BATCH, smaller.format());
        assertTrue(smaller.payload().length < text.length / 10);
    }

    @Test
    void isCompressedOnlyWhereThatSaves() {
        assertEquals(Message.Format.ZSTD_BATCH, pack(true, alike(100)).format());
        byte[] noise = new byte[1000];
        new Random(1).nextBytes(noise);
        assertEquals(Message.Format.BATCH, pack(true, List.of(noise, new byte[] {1})).format());
        BatchBuilder off = new BatchBuilder(Batching.OFF);
        off.add(noise);
        assertTrue(off.isFull());
        assertEquals(noise, off.build().payload());
    }

    @Test
    void theSameRecordsMakeTheSameBytes() {
        assertArrayEquals(pack(true, alike(500)).payload(), pack(true, alike(500)).payload());
    }

    @Test
    void hasRoomForNoMoreThanItIsGiven() {
        BatchBuilder builder = builder(false);
        assertTrue(builder.hasRoom(1000, 10), "the first has room always");
        builder.add(new byte[100]);
        assertTrue(builder.hasRoom(98, 200));
        assertFalse(builder.hasRoom(99, 200), "lengths count");
        builder.add(new byte[98]);
        assertEquals(200, builder.build().payload().length);
        assertTrue(builder.isEmpty());
    }

    @Test
    void whatOthersMakeUpIsRefused() {
        byte[] batch = pack(false, alike(3)).payload();
        assertRefused(Message.Format.BATCH, Arrays.copyOf(batch, batch.length - 1), 3);
        assertRefused(Message.Format.BATCH, batch, 4);
        assertRefused(Message.Format.BATCH, new byte[0], -1);
        assertRefused(Message.Format.BATCH, new byte[] {-1, -1, -1, -1, -1, -1}, -1);
        assertRefused(Message.Format.BATCH, new byte[] {-1, -1, -1, -1, 15}, -1); // below 0
        assertRefused(Message.Format.BATCH, new byte[Message.MAX_RECORDS + 1], -1);
        byte[] packed = pack(true, alike(300)).payload();
        assertRefused(Message.Format.ZSTD_BATCH, Arrays.copyOf(packed, packed.length - 5), 300);
        assertRefused(Message.Format.ZSTD_BATCH, batch, 3);
        packed[0] ^= 1; // the length it would have
        assertRefused(Message.Format.ZSTD_BATCH, packed, 300);
        assertRefused(Message.Format.ZSTD_BATCH, new byte[] {-1, -1, -1, -1, 7, 0}, -1); // 2 GiB
    }

    @Test
    void noDamageDoesMoreThanToBeRefused() {
        byte[] good = pack(true, alike(50)).payload();
        Random random = new Random(3);
        ZstdDecompressor zstd = new ZstdDecompressor();
        for (int i = 0; i < 5000; i++) {
            byte[] bad = good.clone();
            for (int flips = 0; flips <= random.nextInt(3); flips++) {
                bad[random.nextInt(bad.length)] ^= (byte) (1 << random.nextInt(8));
            }
            try {
                BatchReader records = BatchReader.open(Message.Format.ZSTD_BATCH, bad, -1, zstd);
                while (records.hasNext()) {
                    records.next();
                }
            } catch (IllegalArgumentException e) {
                assertTrue(e.getMessage().startsWith("cannot read a batch"), e.getMessage());
            }
            assertTrue(BatchReader.open(Message.Format.ZSTD_BATCH, good, 50, zstd).hasNext(), "it does no harm");
        }
    }

    private static void assertRefused(Message.Format form, byte[] payload, int count) {
        assertThrows(
                IllegalArgumentException.class,
                () -> BatchReader.open(form, payload, count, new ZstdDecompressor()));
    }
}
