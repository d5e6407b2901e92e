package io.speck.mqtt.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.connection.BrokerAddress;
import io.speck.mqtt.connection.Delivery;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.protocol.Batching;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class MqttSinkTest {
    @Test
    void epochsOnlyRise() {
        LinkConfig link =
                new LinkConfig(
                        BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 10);
        MqttSink sink = new MqttSink(link, 2, settings());
        Random random = new Random(7);
        long epoch = sink.chooseEpoch(random, List.of());
        assertEquals(2, epoch >> 22);
        for (int i = 0; i < 50; i++) {
            long next = sink.chooseEpoch(random, List.of(new MqttSink.State(epoch, 9, false, null)));
            assertTrue(next > epoch);
            assertEquals(2, next >> 22);
            epoch = next;
        }
        long later = 5L << 22;
        assertTrue(sink.chooseEpoch(random, List.of(new MqttSink.State(later, 9, false, null))) > later);
    }

    /** After a restore the store counts attempts from the milliseconds since 2020. */
    @Test
    void epochsOfARestoredStoreRise() {
        LinkConfig link =
                new LinkConfig(
                        BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 10);
        Random random = new Random(7);
        long before = 0;
        for (long attempt : new long[] {1, 1000, 218_000_000_000L, 218_000_000_001L, 2_000_000_000_000L}) {
            long epoch = new MqttSink(link, attempt, settings()).chooseEpoch(random, List.of());
            assertTrue(epoch > before, () -> attempt + " begins at " + epoch);
            before = epoch;
        }
    }

    /** Two openings from the same state must not number different records alike. */
    @Test
    void epochsAreNeverUsedTwice() {
        LinkConfig link =
                new LinkConfig(
                        BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 10);
        MqttSink sink = new MqttSink(link, 2, settings());
        List<MqttSink.State> restored =
                List.of(new MqttSink.State((2L << 22) + (1L << 21), 9, false, null));
        Random random = new Random(7);
        assertEquals(100, random(sink, random, List.of()).size());
        assertEquals(100, random(sink, random, restored).size());
    }

    private static SinkSettings settings() {
        return new SinkSettings(false, 100, Duration.ZERO, 0, 0, Batching.OFF);
    }

    private static Set<Long> random(MqttSink sink, Random random, List<MqttSink.State> restored) {
        Set<Long> epochs = new HashSet<>();
        for (int i = 0; i < 100; i++) {
            epochs.add(sink.chooseEpoch(random, restored));
        }
        return epochs;
    }
}
