package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.junit.jupiter.api.Test;

class MqttSourceReaderTest {
    @Test
    void forgetsCheckpointsThatFail() {
        LinkConfig nowhere =
                new LinkConfig(
                        BrokerAddress.parse("tcp://127.0.0.1:1"),
                        "t",
                        "c",
                        Delivery.AT_LEAST_ONCE,
                        10);
        MqttSourceReader reader =
                new MqttSourceReader(
                        nowhere, UnregisteredMetricsGroup.createSourceReaderMetricGroup());
        reader.addSplits(List.of(TopicSplit.fresh()));
        for (int checkpoint = 1; checkpoint <= 100; checkpoint++) {
            reader.snapshotState(checkpoint);
            if (checkpoint % 10 != 0) {
                reader.notifyCheckpointAborted(checkpoint);
            }
        }
        assertEquals(10, reader.openCheckpoints());
        reader.notifyCheckpointComplete(50);
        assertEquals(5, reader.openCheckpoints());
        reader.close();
    }
}
