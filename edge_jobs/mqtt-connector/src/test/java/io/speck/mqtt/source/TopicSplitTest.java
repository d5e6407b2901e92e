package io.speck.mqtt.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.speck.mqtt.protocol.TakenNumbers;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class TopicSplitTest {
    private final TopicSplit.Serializer serializer = new TopicSplit.Serializer();

    @Test
    void keepsItsNumbers() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/1/1");
        taken.take("a/1/3");
        byte[] bytes = serializer.serialize(new TopicSplit(taken));
        TopicSplit restored = serializer.deserialize(serializer.getVersion(), bytes);
        assertEquals(taken.toJson(0, 0, null), restored.taken().toJson(0, 0, null));
    }

    @Test
    void readsTheStateOfTheFirstVersion() throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeBoolean(true);
        out.writeLong(42); // messages
        out.writeInt(0); // producers
        assertEquals(42, serializer.deserialize(1, bytes.toByteArray()).taken().messages());
    }

    @Test
    void theStateHoldsNoAddress() throws Exception {
        TakenNumbers taken = new TakenNumbers();
        taken.take("a/1/1");
        taken.useLink("reader");
        byte[] bytes = serializer.serialize(new TopicSplit(taken));
        assertFalse(new String(bytes, StandardCharsets.ISO_8859_1).contains("tcp"));
        assertEquals("link", new TopicSplit(taken).splitId());
    }
}
