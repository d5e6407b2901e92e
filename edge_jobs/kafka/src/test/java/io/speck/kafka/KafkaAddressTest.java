package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class KafkaAddressTest {
    @Test
    void addressesAreNormalised() {
        assertEquals("kafka://host:9092", Transports.parse("KAFKA://Host/").toString());
        assertEquals("kafka+ssl://host:9093", Transports.parse("kafka+ssl://host").toString());
        assertEquals(
                "kafka://a:9092,b:9093", Transports.parse("kafka://b:9093,a,b:9093").toString());
        BrokerAddress broker = Transports.parse("kafka://[::1]:1");
        assertEquals(broker, BrokerAddress.ofNormalised(broker.toString()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"kafka://", "kafka://a,,b", "kafka://u@a:1", "kafka://a:x", "kafka://a/b"})
    void otherAddressesAreRefused(String text) {
        Exception refusal =
                assertThrows(IllegalArgumentException.class, () -> Transports.parse(text));
        assertTrue(refusal.getMessage().startsWith("cannot use the broker address"));
    }

    @Test
    void anUnknownSchemeIsRefusedWithTheKnownOnes() {
        Exception refusal =
                assertThrows(IllegalArgumentException.class, () -> Transports.parse("amqp://a:1"));
        assertEquals(
                "cannot use the broker address \"amqp://a:1\": it must be kafka://host:port",
                refusal.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"a/b", "", "..", "a#", "ä"})
    void topicsThatKafkaDoesNotKnowAreRefused(String topic) {
        LinkConfig link =
                new LinkConfig(
                        Transports.parse("kafka://a"), topic, "c", Delivery.AT_LEAST_ONCE, 1);
        assertThrows(IllegalArgumentException.class, () -> LinkTopic.checkName(link));
    }
}
