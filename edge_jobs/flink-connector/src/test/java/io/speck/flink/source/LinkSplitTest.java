package io.speck.flink.source;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.ReaderState;
import io.speck.link.protocol.TakenNumbers;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LinkSplitTest {
    private final LinkSplit.Serializer serializer = new LinkSplit.Serializer();

    @Test
    void keepsItsNumbers() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/1/1");
        taken.take("a/1/3");
        byte[] bytes = serializer.serialize(split(taken));
        LinkSplit restored = serializer.deserialize(serializer.getVersion(), bytes);
        assertEquals(taken.toJson(0, 0, 0, null), restored.state().taken().toJson(0, 0, 0, null));
    }

    /** Whoever changes these bytes must change the version, too. */
    @Test
    void writesTheseBytes() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/7/1");
        taken.take("a/7/3");
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(2); // messages
        out.writeLong(0); // lost
        out.writeLong(0); // no link
        out.writeInt(1); // producers
        out.writeUTF("a");
        out.writeBoolean(false); // unheard
        out.writeInt(1); // epochs
        out.writeLong(7);
        out.writeLong(0); // lost
        out.writeLong(Long.MIN_VALUE); // start
        out.writeBoolean(false); // away
        out.writeInt(4); // bounds
        for (long bound : new long[] {1, 1, 3, 3}) {
            out.writeLong(bound);
        }
        assertEquals(3, serializer.getVersion());
        assertArrayEquals(bytes.toByteArray(), serializer.serialize(split(taken)));
    }

    @Test
    void refusesTheStateOfAnotherVersion() {
        byte[] bytes = new byte[64];
        for (int version : new int[] {0, serializer.getVersion() - 1, serializer.getVersion() + 1}) {
            IOException error =
                    assertThrows(
                            IOException.class, () -> serializer.deserialize(version, bytes));
            assertEquals("cannot read source state of version " + version, error.getMessage());
        }
    }

    @Test
    void theStateHoldsNoAddress() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/1/1");
        taken.useLink("reader");
        byte[] bytes = serializer.serialize(split(taken));
        assertFalse(new String(bytes, StandardCharsets.ISO_8859_1).contains("tcp"));
        assertEquals("link", split(taken).splitId());
    }

    /** Those of readers of logs only: other readers' bytes are what they were. */
    @Test
    void keepsAPositionBehindTheNumbers() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/1/1");
        LogPosition position = new LogPosition(Map.of("id/0", 7L, "id/1", 9L));
        byte[] bytes = serializer.serialize(new LinkSplit(new ReaderState(taken, position)));
        assertArrayEquals(
                serializer.serialize(split(taken)),
                Arrays.copyOf(bytes, serializer.serialize(split(taken)).length));
        assertEquals(position, serializer.deserialize(3, bytes).state().position());
    }

    private static LinkSplit split(TakenNumbers taken) {
        return new LinkSplit(new ReaderState(taken, LogPosition.NONE));
    }
}
