package io.speck.mqtt.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.connection.BrokerAddress;
import io.speck.mqtt.connection.Delivery;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.protocol.Message;
import io.speck.mqtt.protocol.ProducerEpoch;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

class SinkStateTest {
    private static final LinkConfig LINK =
            new LinkConfig(
                    BrokerAddress.parse("tcp://h:1"), "t", "c-out", Delivery.EXACTLY_ONCE, 10);

    private static final NumberedMessages EARLIER = new NumberedMessages(ProducerEpoch.of("p", 6), 9, List.of(Message.of(new byte[] {8})));

    @Test
    void aBatchKeepsItsLinkNumbersAndBytes() throws Exception {
        Committable batch = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 41, List.of(EARLIER));
        batch.messages()
                .messages()
                .addAll(
                        List.of(
                                Message.of(new byte[] {1, 2}),
                                Message.of(new byte[0]),
                                new Message(Message.Format.ZSTD_BATCH, 7, new byte[] {3})));
        Committable.Serializer serializer = new Committable.Serializer();
        Committable read = serializer.deserialize(serializer.getVersion(), serializer.serialize(batch));
        assertTrue(read.isFor(LINK));
        assertEquals(ProducerEpoch.of("p", 7), read.messages().epoch());
        assertEquals(41, read.messages().first());
        assertEquals(3, read.messages().messages().size());
        assertEquals(Message.Format.PLAIN, read.messages().messages().get(1).format());
        assertEquals(Message.Format.ZSTD_BATCH, read.messages().messages().get(2).format());
        assertEquals(49, read.messages().toSinkMessages().get(2).lastNumber());
        assertEquals(1, read.recent().size());
        assertEquals(9, read.recent().get(0).first());
        assertEquals(ProducerEpoch.of("p", 6), read.recent().get(0).epoch());
        assertArrayEquals(new byte[] {8}, read.recent().get(0).messages().get(0).payload());
        for (int i = 0; i < 3; i++) {
            assertArrayEquals(
                    batch.messages().messages().get(i).payload(),
                    read.messages().messages().get(i).payload());
        }
    }

    @Test
    void anotherTopicOrBrokerOrClientIsAnotherLink() {
        Committable batch = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 1, List.of());
        BrokerAddress other = BrokerAddress.parse("tcp://h:2");
        Delivery delivery = Delivery.AT_LEAST_ONCE;
        assertTrue(batch.isFor(new LinkConfig(LINK.broker(), "t", "c-out", delivery, 99)));
        assertFalse(batch.isFor(new LinkConfig(other, "t", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "u", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "t", "d-out", delivery, 10)));
    }

    @Test
    void theWritersStateIsReadInAllVersions() throws Exception {
        MqttSink.StateSerializer serializer = new MqttSink.StateSerializer();
        MqttSink.State state = new MqttSink.State(5, 9, true, null);
        assertEquals(state, serializer.deserialize(3, serializer.serialize(state)));
        byte[] second = ByteBuffer.allocate(17).putLong(5).putLong(9).put((byte) 1).array();
        assertEquals(state, serializer.deserialize(2, second));
        byte[] first = ByteBuffer.allocate(16).putLong(5).putLong(9).array();
        assertEquals(new MqttSink.State(5, 9, false, null), serializer.deserialize(1, first));
    }

    @Test
    void whatWasPublishedIsKeptForItsOwnLinkOnly() throws Exception {
        MqttSink.StateSerializer serializer = new MqttSink.StateSerializer();
        Committable recent = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 10, List.of(EARLIER));
        MqttSink.State read =
                serializer.deserialize(
                        3, serializer.serialize(new MqttSink.State(7, 9, false, recent)));
        assertEquals(9, read.recentOver(LINK).get(0).toSinkMessages().get(0).number());
        LinkConfig other =
                new LinkConfig(LINK.broker(), "u", "c-out", Delivery.AT_LEAST_ONCE, 10);
        assertEquals(List.of(), read.recentOver(other));
    }

    @Test
    void batchesOfFormerVersionsAreRead() throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeUTF("tcp://h:1");
        out.writeUTF("t");
        out.writeUTF("c-out");
        writeRun(out, 7, 41, 2);
        Committable first = new Committable.Serializer().deserialize(1, bytes.toByteArray());
        assertEquals(List.of(), first.recent());
        assertEquals(42, first.messages().toSinkMessages().get(1).lastNumber());
        out.writeInt(1);
        writeRun(out, 6, 9, 1);
        Committable second = new Committable.Serializer().deserialize(2, bytes.toByteArray());
        assertEquals(9, second.recent().get(0).toSinkMessages().get(0).number());
        assertTrue(second.messages().messages().get(1).isPlain());
    }

    /** As it was before a message could carry several records. */
    private static void writeRun(DataOutputStream out, long epoch, long first, int records)
            throws IOException {
        out.writeUTF("p");
        out.writeLong(epoch);
        out.writeLong(first);
        out.writeInt(records);
        for (int i = 0; i < records; i++) {
            out.writeInt(1);
            out.writeByte(i);
        }
    }
}
