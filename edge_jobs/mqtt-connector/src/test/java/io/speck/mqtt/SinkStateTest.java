package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

class SinkStateTest {
    private static final LinkConfig LINK =
            new LinkConfig(
                    BrokerAddress.parse("tcp://h:1"), "t", "c-out", Delivery.EXACTLY_ONCE, 10);

    @Test
    void aBatchKeepsItsLinkNumbersAndBytes() throws Exception {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 41);
        batch.payloads().addAll(List.of(new byte[] {1, 2}, new byte[0], new byte[] {3}));
        Batch.Serializer serializer = new Batch.Serializer();
        Batch read = serializer.deserialize(serializer.getVersion(), serializer.serialize(batch));
        assertTrue(read.isFor(LINK));
        assertEquals(Series.of("p", 7), read.series());
        assertEquals(41, read.first());
        assertEquals(3, read.payloads().size());
        for (int i = 0; i < 3; i++) {
            assertArrayEquals(batch.payloads().get(i), read.payloads().get(i));
        }
    }

    @Test
    void anotherTopicOrBrokerOrClientIsAnotherLink() {
        Batch batch = Batch.to(LINK, Series.of("p", 7), 1);
        BrokerAddress other = BrokerAddress.parse("tcp://h:2");
        Delivery delivery = Delivery.AT_LEAST_ONCE;
        assertTrue(batch.isFor(new LinkConfig(LINK.broker(), "t", "c-out", delivery, 99)));
        assertFalse(batch.isFor(new LinkConfig(other, "t", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "u", "c-out", delivery, 10)));
        assertFalse(batch.isFor(new LinkConfig(LINK.broker(), "t", "d-out", delivery, 10)));
    }

    @Test
    void theWritersStateIsReadInBothVersions() throws Exception {
        MqttSink.StateSerializer serializer = new MqttSink.StateSerializer();
        MqttSink.State state = new MqttSink.State(5, 9, true);
        assertEquals(state, serializer.deserialize(2, serializer.serialize(state)));
        byte[] first = ByteBuffer.allocate(16).putLong(5).putLong(9).array();
        assertEquals(new MqttSink.State(5, 9, false), serializer.deserialize(1, first));
    }
}
