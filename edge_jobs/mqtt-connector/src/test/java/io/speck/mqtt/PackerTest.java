package io.speck.mqtt;

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

class PackerTest {
    private static Packer packer(boolean zstd) {
        return new Packer(new Batching(Parcel.MOST_RECORDS, 0, zstd));
    }

    static Parcel pack(boolean zstd, List<byte[]> records) {
        Packer packer = packer(zstd);
        records.forEach(packer::add);
        return packer.take();
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
            assertSame(records, Frames.all(pack(zstd, records)));
        }
    }

    @Test
    void oneRecordAloneGoesAsItIs() {
        byte[] record = {1, 2, 3};
        assertTrue(pack(false, List.of(record)).isPlain());
        assertTrue(pack(true, List.of(record)).isPlain(), "it would only grow");
        byte[] text = "speed ".repeat(1000).getBytes(StandardCharsets.UTF_8);
        Parcel smaller = pack(true, List.of(text));
        assertEquals(Parcel.Form.ZSTD, smaller.form());
        assertTrue(smaller.payload().length < text.length / 10);
    }

    @Test
    void isCompressedOnlyWhereThatSaves() {
        assertEquals(Parcel.Form.ZSTD, pack(true, alike(100)).form());
        byte[] noise = new byte[1000];
        new Random(1).nextBytes(noise);
        assertEquals(Parcel.Form.FRAMED, pack(true, List.of(noise, new byte[] {1})).form());
        Packer off = new Packer(Batching.OFF);
        off.add(noise);
        assertTrue(off.isFull());
        assertEquals(noise, off.take().payload());
    }

    @Test
    void theSameRecordsMakeTheSameBytes() {
        assertArrayEquals(pack(true, alike(500)).payload(), pack(true, alike(500)).payload());
    }

    @Test
    void hasRoomForNoMoreThanItIsGiven() {
        Packer packer = packer(false);
        assertTrue(packer.hasRoom(1000, 10), "the first has room always");
        packer.add(new byte[100]);
        assertTrue(packer.hasRoom(98, 200));
        assertFalse(packer.hasRoom(99, 200), "lengths count");
        packer.add(new byte[98]);
        assertEquals(200, packer.take().payload().length);
        assertTrue(packer.isEmpty());
    }

    @Test
    void whatOthersMakeUpIsRefused() {
        byte[] frames = pack(false, alike(3)).payload();
        assertRefused(Parcel.Form.FRAMED, Arrays.copyOf(frames, frames.length - 1), 3);
        assertRefused(Parcel.Form.FRAMED, frames, 4);
        assertRefused(Parcel.Form.FRAMED, new byte[0], -1);
        assertRefused(Parcel.Form.FRAMED, new byte[] {-1, -1, -1, -1, -1, -1}, -1);
        assertRefused(Parcel.Form.FRAMED, new byte[] {-1, -1, -1, -1, 15}, -1); // below 0
        assertRefused(Parcel.Form.FRAMED, new byte[Parcel.MOST_RECORDS + 1], -1);
        byte[] packed = pack(true, alike(300)).payload();
        assertRefused(Parcel.Form.ZSTD, Arrays.copyOf(packed, packed.length - 5), 300);
        assertRefused(Parcel.Form.ZSTD, frames, 3);
        packed[0] ^= 1; // the length it would have
        assertRefused(Parcel.Form.ZSTD, packed, 300);
        assertRefused(Parcel.Form.ZSTD, new byte[] {-1, -1, -1, -1, 7, 0}, -1); // 2 GiB
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
                Frames frames = Frames.of(Parcel.Form.ZSTD, bad, -1, zstd);
                while (frames.hasNext()) {
                    frames.next();
                }
            } catch (IllegalArgumentException e) {
                assertTrue(e.getMessage().startsWith("cannot read a batch"), e.getMessage());
            }
            assertTrue(Frames.of(Parcel.Form.ZSTD, good, 50, zstd).hasNext(), "it does no harm");
        }
    }

    private static void assertRefused(Parcel.Form form, byte[] payload, int count) {
        assertThrows(
                IllegalArgumentException.class,
                () -> Frames.of(form, payload, count, new ZstdDecompressor()));
    }
}
