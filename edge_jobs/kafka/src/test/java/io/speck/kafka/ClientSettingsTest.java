package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.junit.jupiter.api.Test;

class ClientSettingsTest {
    private static final int SLOW_BITS_A_SECOND = 500_000;

    /** Else a reader that has something to catch up with would never get it. */
    @Test
    void overASlowNetworkAFetchEndsBeforeItsTimeout() {
        LinkConfig link =
                new LinkConfig(
                        KafkaAddress.parse("kafka://127.0.0.1:1"),
                        "t",
                        "c",
                        Delivery.AT_LEAST_ONCE,
                        10);
        ConsumerConfig consumer = new ConsumerConfig(ClientSettings.ofConsumer(link, true));
        double seconds =
                8.0 * consumer.getInt(ConsumerConfig.FETCH_MAX_BYTES_CONFIG) / SLOW_BITS_A_SECOND;
        int timeoutMs = consumer.getInt(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG);
        assertTrue(1000 * seconds < timeoutMs, seconds + " s for a fetch");
    }
}
