package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

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

    private static final Run EARLIER = new Run(Series.of("p", 6), 9, List.of(Parcel.of(new byte[] {8})));

    @Test
    void aBatchKeepsItsLinkNumbersAndBytes() throws Exception {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 41, List.of(EARLIER));
        batch.run()
                .parcels()
                .addAll(
                        List.of(
                                Parcel.of(new byte[] {1, 2}),
                                Parcel.of(new byte[0]),
                                new Parcel(Parcel.Form.ZSTD, 7, new byte[] {3})));
        Batch.Serializer serializer = new Batch.Serializer();
        Batch read = serializer.deserialize(serializer.getVersion(), serializer.serialize(batch));
        assertTrue(read.isFor(LINK));
        assertEquals(Series.of("p", 7), read.run().series());
        assertEquals(41, read.run().first());
        assertEquals(3, read.run().parcels().size());
        assertEquals(Parcel.Form.PLAIN, read.run().parcels().get(1).form());
        assertEquals(Parcel.Form.ZSTD, read.run().parcels().get(2).form());
        assertEquals(49, read.run().records().get(2).last());
        assertEquals(1, read.before().size());
        assertEquals(9, read.before().get(0).first());
        assertEquals(Series.of("p", 6), read.before().get(0).series());
        assertArrayEquals(new byte[] {8}, read.before().get(0).parcels().get(0).payload());
        for (int i = 0; i < 3; i++) {
            assertArrayEquals(
                    batch.run().parcels().get(i).payload(),
                    read.run().parcels().get(i).payload());
        }
    }

    @Test
    void anotherTopicOrBrokerOrClientIsAnotherLink() {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 1, List.of());
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
        Batch recent = Batch.to(LINK, Series.of("p", 7), 10, List.of(EARLIER));
        MqttSink.State read =
                serializer.deserialize(
                        3, serializer.serialize(new MqttSink.State(7, 9, false, recent)));
        assertEquals(9, read.recentOver(LINK).get(0).records().get(0).number);
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
        Batch first = new Batch.Serializer().deserialize(1, bytes.toByteArray());
        assertEquals(List.of(), first.before());
        assertEquals(42, first.run().records().get(1).last());
        out.writeInt(1);
        writeRun(out, 6, 9, 1);
        Batch second = new Batch.Serializer().deserialize(2, bytes.toByteArray());
        assertEquals(9, second.before().get(0).records().get(0).number);
        assertTrue(second.run().parcels().get(1).isPlain());
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
