package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

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

    /** A few messages may carry more than an exactly-once sink could keep until the checkpoint. */
    @Test
    void takesNoMoreThanItMayHaveInHandUntilACheckpointIsComplete(@TempDir Path folder)
            throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker)) {
            LinkConfig link =
                    new LinkConfig(
                            BrokerAddress.parse(broker.address()),
                            "in",
                            "reader",
                            Delivery.EXACTLY_ONCE,
                            10);
            int most = 250 * ("r100".length() + ResendWindow.OVERHEAD_BYTES);
            MqttSourceReader reader =
                    new MqttSourceReader(
                            link, UnregisteredMetricsGroup.createSourceReaderMetricGroup(), most);
            reader.addSplits(List.of(TopicSplit.fresh()));
            reader.start();
            var taken = new BatchedLinkTest.Collected();
            for (int from = 100; from < 900; from += 200) {
                Parcel together = BatchedLinkTest.together(true, from, from + 199);
                client.publishTogether("in", 1, from, together).join();
            }
            BatchedLinkTest.pollUntil(reader, taken, 250);
            assertEquals(InputStatus.NOTHING_AVAILABLE, reader.pollNext(taken));
            reader.snapshotState(1);
            assertEquals(InputStatus.NOTHING_AVAILABLE, reader.pollNext(taken));
            CompletableFuture<Void> more = reader.isAvailable();
            assertFalse(more.isDone(), "it does not ask again and again");
            reader.notifyCheckpointAborted(1);
            reader.snapshotState(2);
            assertEquals(250, taken.records.size());
            reader.notifyCheckpointComplete(2);
            assertTrue(more.isDone());
            BatchedLinkTest.pollUntil(reader, taken, 500);
            reader.snapshotState(3);
            reader.notifyCheckpointComplete(3);
            BatchedLinkTest.pollUntil(reader, taken, 750);
            assertEquals(OnBrokers.records(100, 849), taken.records);
            reader.close();
        }
    }
}
