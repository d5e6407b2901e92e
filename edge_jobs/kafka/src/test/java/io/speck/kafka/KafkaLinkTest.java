package io.speck.kafka;

import io.speck.kafka.testing.KafkaBroker;
import io.speck.kafka.testing.KafkaServer;
import io.speck.link.testing.LinkContract;
import io.speck.link.testing.TestBroker;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;

/** Links over Kafka: one server for all of them, since it takes seconds to start. */
@Tag("long")
class KafkaLinkTest extends LinkContract {
    @TempDir static Path folder;
    private static KafkaBroker broker;

    @BeforeAll
    static void startBroker() throws Exception {
        broker = KafkaBroker.of(KafkaServer.started(folder));
    }

    @AfterAll
    static void stopBroker() throws Exception {
        broker.close();
    }

    @Override
    protected TestBroker broker() {
        return broker;
    }
}
