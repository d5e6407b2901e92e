package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.kafka.testing.KafkaServer;
import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestJob;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** Two jobs in a row, the link between which is another kind of broker: MQTT, Kafka, MQTT. */
@Tag("long")
class MixedLinksTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    @TempDir static Path ofKafka;
    private static KafkaServer kafka;
    private static int links;

    private final String between = "between" + ++links;
    private TestJob second;

    @BeforeAll
    static void startKafka() throws Exception {
        kafka = KafkaServer.started(ofKafka);
    }

    @AfterAll
    static void stopKafka() throws Exception {
        kafka.close();
    }

    @AfterEach
    void endSecond() throws Exception {
        if (second != null) {
            second.cancel();
        }
    }

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    private TestJob toKafka() {
        job =
                new TestJob(broker.address(), "in", kafka.address(), between)
                        .with("delivery", "exactly_once");
        return job;
    }

    private TestJob fromKafka() {
        second =
                new TestJob(kafka.address(), between, broker.address(), "out")
                        .with("client-id", "speck-0a1b2c3d-second-89abcdef")
                        .with("delivery", "exactly_once");
        return second;
    }

    /** By stamp: the last hop's reader is not ours. */
    private List<String> once() {
        Map<String, String> byStamp = new LinkedHashMap<>();
        List<String> stamps = out.stamps();
        List<String> payloads = out.payloads();
        for (int i = 0; i < Math.min(stamps.size(), payloads.size()); i++) {
            byStamp.putIfAbsent(stamps.get(i), payloads.get(i));
        }
        return List.copyOf(byStamp.values());
    }

    @Test
    void recordsPassOnceAndInOrder() throws Exception {
        fromKafka().start(); // its place is at the end: it begins first
        awaitReading("speck-0a1b2c3d-second-89abcdef");
        startAndSubscribe(toKafka());
        client.publishNumbered("in", 7, 1, 500);
        Wait.until("all came", () -> once().size() >= 500, this::once);
        assertEquals(records(1, 500), once());
    }

    @Test
    void bothJobsGoOnFromTheirStatesAndKafkaMayFall() throws Exception {
        fromKafka().start();
        awaitReading("speck-0a1b2c3d-second-89abcdef");
        startAndSubscribe(toKafka());
        client.publishNumbered("in", 7, 1, 200);
        Wait.until("the first came", () -> once().size() >= 200, this::once);
        kafka.kill();
        client.publishNumbered("in", 7, 201, 400);
        kafka.start();
        Wait.until("the next came", () -> once().size() >= 400, this::once);
        String first = job.stop(folder.toUri().toString());
        String after = second.stop(folder.toUri().toString());
        client.publishNumbered("in", 7, 401, 600); // waits in its session
        toKafka().from(first).start();
        fromKafka().from(after).start();
        Wait.until("all came", () -> once().size() >= 600, this::once);
        assertEquals(records(1, 600), once());
    }

    /** The group has a place: what is written from now on is for it. */
    private void awaitReading(String group) throws Exception {
        try (var admin = kafka.admin()) {
            Wait.until(
                    "the reader has a place",
                    () ->
                            !admin.listConsumerGroupOffsets(group)
                                    .partitionsToOffsetAndMetadata()
                                    .get()
                                    .entrySet()
                                    .stream()
                                    .filter(place -> place.getKey().topic().equals(between))
                                    .toList()
                                    .isEmpty());
        }
    }
}
