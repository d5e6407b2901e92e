package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class SinkStateTest {
    private static final LinkConfig LINK =
            new LinkConfig(
                    BrokerAddress.parse("tcp://h:1"), "t", "c-out", Delivery.EXACTLY_ONCE, 10);

    private static final Run EARLIER = new Run(Series.of("p", 6), 9, List.of(new byte[] {8}));

    @Test
    void aBatchKeepsItsLinkNumbersAndBytes() throws Exception {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 41, List.of(EARLIER));
        batch.run().payloads().addAll(List.of(new byte[] {1, 2}, new byte[0], new byte[] {3}));
        Batch.Serializer serializer = new Batch.Serializer();
        Batch read = serializer.deserialize(serializer.getVersion(), serializer.serialize(batch));
        assertTrue(read.isFor(LINK));
        assertEquals(Series.of("p", 7), read.run().series());
        assertEquals(41, read.run().first());
        assertEquals(3, read.run().payloads().size());
        assertEquals(1, read.before().size());
        assertEquals(9, read.before().get(0).first());
        assertEquals(Series.of("p", 6), read.before().get(0).series());
        assertArrayEquals(new byte[] {8}, read.before().get(0).payloads().get(0));
        for (int i = 0; i < 3; i++) {
            assertArrayEquals(batch.run().payloads().get(i), read.run().payloads().get(i));
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
    void aBatchOfTheFirstVersionHasNothingBefore() throws Exception {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 1, List.of());
        batch.run().payloads().add(new byte[] {1});
        Batch.Serializer serializer = new Batch.Serializer();
        byte[] now = serializer.serialize(batch);
        byte[] first = Arrays.copyOf(now, now.length - Integer.BYTES);
        assertEquals(List.of(), serializer.deserialize(1, first).before());
    }
}
