package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.kafka.testing.KafkaBroker;
import io.speck.kafka.testing.KafkaServer;
import io.speck.link.protocol.ReaderState;
import io.speck.link.testing.TestReader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A machine loses power, and its log the records that no disk had: it grows past the places of
 * readers again, with other records. Nobody sends again what was lost here.
 */
@Tag("long")
class CutLogTest {
    private static final int LEFT = 6;

    @TempDir static Path folder;
    private static KafkaServer server;
    private static KafkaBroker broker;

    @BeforeAll
    static void startBroker() throws Exception {
        server = KafkaServer.started(folder);
        broker = KafkaBroker.of(server);
    }

    @AfterAll
    static void stopBroker() throws Exception {
        broker.close();
    }

    private static List<String> publish(String topic, String name) throws Exception {
        List<String> records = new ArrayList<>();
        for (int i = 1; i <= 10; i++) {
            records.add(name + i);
            broker.publish(topic, name + i);
        }
        return records;
    }

    private static void cut(String topic) throws Exception {
        server.kill();
        server.cutLog(topic, LEFT);
        server.start();
    }

    @Test
    void aReaderThatWasAwayReadsAllThatCameAfterTheCut() throws Exception {
        broker.reserve(TestReader.CLIENT_ID, "away");
        List<String> before = publish("away", "before");
        ReaderState state;
        try (TestReader reader = new TestReader(broker, "away", ReaderState.empty())) {
            assertEquals(before, reader.pollUntil(10).records);
            state = reader.checkpoint();
            reader.complete();
        }
        cut("away");
        List<String> after = publish("away", "after");
        try (TestReader reader = new TestReader(broker, "away", state)) {
            assertEquals(after, reader.pollUntil(10).records);
        }
        try (TestReader reader = new TestReader(broker, "away", ReaderState.empty())) {
            assertEquals(after, reader.pollUntil(10).records, "its place has the epoch, too");
        }
    }

    @Test
    void aReaderThatIsThereReadsAllThatCameAfterTheCut() throws Exception {
        broker.reserve(TestReader.CLIENT_ID, "there");
        List<String> all = new ArrayList<>(publish("there", "before"));
        try (TestReader reader = new TestReader(broker, "there", ReaderState.empty())) {
            assertEquals(all, reader.pollUntil(10).records);
            cut("there");
            all.addAll(publish("there", "after"));
            assertEquals(all, reader.pollUntil(20).records);
        }
    }
}
