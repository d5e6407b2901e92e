package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

class SinkStateTest {
    private static final LinkConfig LINK =
            new LinkConfig(
                    BrokerAddress.ofNormalised("tcp://h:1"), "t", "c-out", Delivery.EXACTLY_ONCE, 10);

    private static final NumberedMessages EARLIER =
            new NumberedMessages(
                    ProducerEpoch.of("p", 6), 9, List.of(Message.of(new byte[] {8})));

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
    void anotherTopicOrClientIsAnotherLinkAnotherAddressIsNot() {
        Committable batch = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 1, List.of());
        BrokerAddress other = BrokerAddress.ofNormalised("tcp://h:2");
        Delivery delivery = Delivery.AT_LEAST_ONCE;
        assertTrue(batch.isFor(new LinkConfig(LINK.broker(), "t", "c-out", delivery, 99)));
        assertTrue(batch.isFor(new LinkConfig(other, "t", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "u", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "t", "d-out", delivery, 10)));
    }

    @Test
    void theWriterFindsItsNumbersAgain() throws Exception {
        SinkState.Serializer serializer = new SinkState.Serializer(1);
        SinkState state = new SinkState("", 5, 9, true, null);
        byte[] bytes = serializer.serialize(state);
        assertEquals(state, serializer.deserialize(serializer.getVersion(), bytes));
    }

    /** In a port of several links each state says whose it is. */
    @Test
    void aStateNamesItsLinkWhereThereAreSeveral() throws Exception {
        SinkState.Serializer ofTwo = new SinkState.Serializer(2);
        SinkState state = new SinkState("c-out", 5, 9, true, null);
        assertEquals(4, ofTwo.getVersion());
        assertEquals(state, new SinkState.Serializer(1).deserialize(4, ofTwo.serialize(state)));
        SinkState single = new SinkState("", 5, 9, true, null);
        byte[] bytes = new SinkState.Serializer(1).serialize(single);
        assertEquals(single, ofTwo.deserialize(3, bytes));
    }

    /** Whoever changes these bytes must change the versions, too. */
    @Test
    void stateIsWrittenAsTheseBytes() throws Exception {
        Committable batch = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 41, List.of(EARLIER));
        batch.messages().messages().add(new Message(Message.Format.BATCH, 2, new byte[] {3}));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(0); // not compressed
        out.writeUTF("tcp://h:1");
        out.writeUTF("t");
        out.writeUTF("c-out");
        writeRun(out, 7, 41);
        out.writeInt(1); // payload
        out.writeByte(1); // format
        out.writeInt(2); // records
        out.writeByte(3);
        out.writeInt(1); // recent runs
        writeRun(out, 6, 9);
        out.writeInt(1);
        out.writeByte(0);
        out.writeByte(8);
        Committable.Serializer committables = new Committable.Serializer();
        assertEquals(4, committables.getVersion());
        assertArrayEquals(bytes.toByteArray(), committables.serialize(batch));

        byte[] state =
                ByteBuffer.allocate(8 + 8 + 1 + 1 + 4 + bytes.size())
                        .putLong(5)
                        .putLong(9)
                        .put((byte) 1) // exact
                        .put((byte) 1) // has recent
                        .putInt(4)
                        .put(bytes.toByteArray())
                        .array();
        SinkState.Serializer states = new SinkState.Serializer(1);
        assertEquals(3, states.getVersion());
        assertArrayEquals(state, states.serialize(new SinkState("", 5, 9, true, batch)));
        state[8 + 8 + 1 + 1 + 3] = 3; // the version of what is recent
        assertThrows(IOException.class, () -> states.deserialize(3, state));
    }

    private static void writeRun(DataOutputStream out, long epoch, long first)
            throws IOException {
        out.writeUTF("p");
        out.writeLong(epoch);
        out.writeLong(first);
        out.writeInt(1); // messages
    }

    @Test
    void stateOfAnotherVersionIsRefused() {
        for (StateSerializer<?> serializer :
                List.of(new Committable.Serializer(), new SinkState.Serializer(1))) {
            for (int version : new int[] {0, 2, 5}) {
                IOException error =
                        assertThrows(
                                IOException.class,
                                () -> serializer.deserialize(version, new byte[64]));
                assertTrue(error.getMessage().endsWith("of version " + version));
            }
        }
    }

    @Test
    void whatWasPublishedIsKeptForItsOwnLinkOnly() throws Exception {
        SinkState.Serializer serializer = new SinkState.Serializer(1);
        Committable recent = Committable.forLink(LINK, ProducerEpoch.of("p", 7), 10, List.of(EARLIER));
        byte[] bytes = serializer.serialize(new SinkState("", 7, 9, false, recent));
        SinkState read = serializer.deserialize(serializer.getVersion(), bytes);
        assertEquals(9, read.recentOver(LINK).get(0).toSinkMessages().get(0).number());
        LinkConfig other =
                new LinkConfig(LINK.broker(), "u", "c-out", Delivery.AT_LEAST_ONCE, 10);
        assertEquals(List.of(), read.recentOver(other));
    }
}
