package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ReaderStateTest {
    private static final Map<String, Long> OFFSETS = Map.of("id/0", 7L, "id/1", 9L);

    private static LogPosition restore(byte[] bytes) throws Exception {
        return ReaderState.fromBytes(ReaderState.VERSION, bytes).position();
    }

    @Test
    void keepsAPositionWithItsTerms() throws Exception {
        LogPosition position = new LogPosition(OFFSETS, Map.of("id/1", 4));
        assertEquals(position, restore(new ReaderState(new TakenNumbers(), position).toBytes()));
    }

    @Test
    void readsPositionsOfBeforeThereWereTerms() throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        new TakenNumbers().write(out);
        out.writeInt(1);
        out.writeUTF("id/0");
        out.writeLong(7);
        assertEquals(new LogPosition(Map.of("id/0", 7L)), restore(bytes.toByteArray()));
    }
}
