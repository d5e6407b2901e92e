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
                        nowhere,
                        HandOver.NONE,
                        UnregisteredMetricsGroup.createSourceReaderMetricGroup());
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

    @Test
    void saysUpToWhichCheckpointAllIsTaken(@TempDir Path folder) throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker);
                TestClient books = new TestClient(broker).listen("speck/taken/reader")) {
            LinkConfig link =
                    new LinkConfig(
                            BrokerAddress.parse(broker.address()),
                            "in",
                            "reader",
                            Delivery.AT_LEAST_ONCE,
                            10);
            MqttSourceReader reader =
                    new MqttSourceReader(
                            link,
                            HandOver.NONE,
                            UnregisteredMetricsGroup.createSourceReaderMetricGroup());
            reader.addSplits(List.of(TopicSplit.fresh()));
            reader.start();
            var taken = new BatchedLinkTest.Collected();
            client.publishTogether("in", 1, 1, BatchedLinkTest.together(true, 1, 100)).join();
            BatchedLinkTest.pollUntil(reader, taken, 1);
            complete(reader, 1); // amidst the message
            BatchedLinkTest.pollUntil(reader, taken, 100);
            complete(reader, 2);
            client.publish("in", "again", "p/1/1").join();
            Wait.until("it has come", () -> reader.isAvailable().isDone());
            complete(reader, 3);
            Wait.until(
                    "it is taken",
                    () -> {
                        reader.pollNext(taken);
                        return !reader.isAvailable().isDone();
                    });
            complete(reader, 4);
            complete(reader, 5); // nothing new was taken since 2
            client.publish("in", "next", "p/1/101").join();
            BatchedLinkTest.pollUntil(reader, taken, 101);
            complete(reader, 6);
            books.await(3);
            assertEquals(
                    List.of("100 0", "100 2", "101 6"),
                    books.payloads().stream()
                            .map(text -> text.replaceFirst("\"messages\":\\d\\d,", "\"messages\":100,"))
                            .map(text -> text.replaceFirst(".*\"messages\":(\\d+),", "$1 "))
                            .map(text -> text.replaceFirst("\"caught_up\":(\\w+)}", "$1"))
                            .toList());
            reader.close();
        }
    }

    /** As many messages are unacknowledged as may be: who knows what the broker has. */
    @Test
    void whoMayTakeNoMoreHasNotCaughtUp(@TempDir Path folder) throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker);
                TestClient books = new TestClient(broker).listen("speck/taken/reader")) {
            LinkConfig link =
                    new LinkConfig(
                            BrokerAddress.parse(broker.address()),
                            "in",
                            "reader",
                            Delivery.AT_LEAST_ONCE,
                            10);
            MqttSourceReader reader =
                    new MqttSourceReader(
                            link,
                            HandOver.NONE,
                            UnregisteredMetricsGroup.createSourceReaderMetricGroup());
            reader.addSplits(List.of(TopicSplit.fresh()));
            reader.start();
            var taken = new BatchedLinkTest.Collected();
            client.publishNumbered("in", 1, 1, 15);
            BatchedLinkTest.pollUntil(reader, taken, 10);
            complete(reader, 1);
            BatchedLinkTest.pollUntil(reader, taken, 15);
            complete(reader, 2);
            books.await(2);
            assertTrue(books.payloads().get(0).endsWith("\"caught_up\":0}"));
            assertTrue(books.payloads().get(1).endsWith("\"caught_up\":2}"));
            reader.close();
        }
    }

    private static void complete(MqttSourceReader reader, long checkpoint) {
        reader.snapshotState(checkpoint);
        reader.notifyCheckpointComplete(checkpoint);
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
                            link,
                            HandOver.NONE,
                            UnregisteredMetricsGroup.createSourceReaderMetricGroup(),
                            most);
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
