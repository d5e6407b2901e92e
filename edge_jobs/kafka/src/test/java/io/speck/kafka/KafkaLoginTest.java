package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.kafka.testing.Guard;
import io.speck.kafka.testing.KafkaBroker;
import io.speck.kafka.testing.KafkaServer;
import io.speck.link.protocol.ReaderState;
import io.speck.link.testing.TestReader;
import io.speck.link.testing.TestWriter;
import io.speck.link.testing.TestWriter.Checkpoint;
import io.speck.link.testing.Wait;
import io.speck.link.transport.Credentials;
import io.speck.link.transport.Delivery;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Links over a Kafka that asks for a password, over TLS. */
@Tag("long")
class KafkaLoginTest {
    private static final List<String> RECORDS = List.of("a", "b", "c");

    @TempDir static Path folder;
    private static KafkaServer server;
    private static Guard guard;
    private static KafkaBroker broker;

    @BeforeAll
    static void start() throws Exception {
        server = KafkaServer.guarded(folder.resolve("kafka"));
        guard = server.guard();
        broker = KafkaBroker.guarded(server);
    }

    @AfterAll
    static void stop() throws Exception {
        server.close();
    }

    @AfterEach
    void forget() {
        System.clearProperty(Credentials.PROPERTY);
        System.clearProperty(KafkaClient.READY_TIMEOUT_PROPERTY);
    }

    private static void use(Path credentials) {
        System.setProperty(Credentials.PROPERTY, credentials.toString());
    }

    private static void passRecords(String topic) throws Exception {
        broker.reserve(TestReader.CLIENT_ID, topic);
        try (TestWriter writer = new TestWriter(broker, topic, Delivery.EXACTLY_ONCE, Checkpoint.NONE);
                TestReader reader = new TestReader(broker, topic, ReaderState.empty())) {
            writer.complete(writer.write(RECORDS).checkpoint());
            assertEquals(RECORDS, reader.pollUntil(RECORDS.size()).records);
            reader.checkpoint();
            reader.complete();
            Wait.until("its place is kept", () -> broker.taken(TestReader.CLIENT_ID, topic) == 3);
        }
    }

    @Test
    void aPasswordIsProvedWithoutBeingSent() throws Exception {
        use(guard.credentials(folder.resolve("scram"), Guard.USER, Guard.PASSWORD));
        passRecords("scram");
    }

    @Test
    void aPasswordIsSentWhereTheCredentialsSaySo() throws Exception {
        use(
                guard.credentials(
                        folder.resolve("plain"),
                        Guard.PLAIN_USER,
                        Guard.PLAIN_PASSWORD,
                        "mechanism=PLAIN"));
        passRecords("plain");
    }

    /** So says the reason by which the control plane knows that waiting is of no use. */
    @Test
    void aWrongPasswordIsARefusedLogin() throws Exception {
        use(guard.credentials(folder.resolve("wrong"), Guard.USER, "guess"));
        assertEquals(
                "the broker refuses the login: AUTHENTICATION_FAILED",
                problem().replaceFirst("(?s).*(the broker refuses)", "$1").replaceFirst(" \\(.*", ""));
    }

    @Test
    void aCertificateOfNobodyThatIsTrustedIsSaid() throws Exception {
        Path credentials = folder.resolve("untrusting");
        credentials.toFile().mkdirs();
        use(credentials); // without a file the JVM's own authorities count
        String problem = problem();
        assertTrue(problem.contains("certification path"), problem);
    }

    private static String problem() {
        System.setProperty(KafkaClient.READY_TIMEOUT_PROPERTY, "3000");
        try (TestReader reader = new TestReader(broker, "nobody", ReaderState.empty())) {
            return String.valueOf(reader.metrics.<Object>read("linkProblem"));
        }
    }
}
