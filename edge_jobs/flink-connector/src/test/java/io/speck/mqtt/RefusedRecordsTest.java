package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.CuttingProxy;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.ShortReadyTimeout;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.executiongraph.ErrorInfo;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.test.junit5.InjectMiniCluster;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** Brokers that refuse a login, a record for what it is, or all records; and who gets to know. */
class RefusedRecordsTest {
    private static final String SENT = "speck/sent/" + TestJob.CLIENT_ID + "-out";
    private static final int LARGE = 100_000;

    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    @TempDir Path folder;
    private Mosquitto broker; // of the source
    private Mosquitto target; // of the sink
    private TestClient client;
    private TestJob job;

    @BeforeEach
    void open() throws Exception {
        broker = Mosquitto.started(folder);
        target = Mosquitto.in(folder);
        client = new TestClient(broker);
        job = new TestJob(broker, "in", target, "out").mapping(RefusedRecordsTest::enlarged);
    }

    @AfterEach
    void close() throws Exception {
        job.cancel();
        client.close();
        broker.close();
        target.close();
    }

    private static byte[] enlarged(byte[] payload) {
        String text = new String(payload, StandardCharsets.US_ASCII);
        return text.equals("r2") ? "x".repeat(LARGE).getBytes(StandardCharsets.US_ASCII) : payload;
    }

    private List<Metric> metrics(String name, String operator) {
        return METRICS.reporter().findMetrics(job.client().getJobID(), name).entrySet().stream()
                .filter(entry -> entry.getKey().contains(operator))
                .map(java.util.Map.Entry::getValue)
                .toList();
    }

    private long count(String name) {
        return metrics(name, "").stream()
                .mapToLong(metric -> ((Counter) metric).getCount())
                .sum();
    }

    private String problem(String operator) {
        return metrics("linkProblem", operator).stream()
                .map(metric -> ((Gauge<?>) metric).getValue().toString())
                .filter(text -> !text.isEmpty())
                .findFirst()
                .orElse("");
    }

    private void start() throws Exception {
        job.start();
        Wait.until(
                "the reader is there",
                () ->
                        metrics("connected", "mqtt-source").stream()
                                .anyMatch(m -> ((Gauge<?>) m).getValue().equals(1)));
    }

    private void awaitReport(TestClient books, String text) throws Exception {
        Wait.until(
                "it says " + text,
                () -> books.lastByTopic().getOrDefault(SENT, "").contains(text),
                books::lastByTopic);
    }

    @Test
    void aRecordOverTheMessageSizeLimitIsLeftOutAndNothingIsRepeated() throws Exception {
        target.with("message_size_limit 65536").start();
        try (TestClient reader = new TestClient(target).listen("out");
                TestClient books = new TestClient(target).listen("speck/sent/#")) {
            start();
            client.publishNumbered("in", 1, 1, 4);
            awaitReport(books, "\"left_out\":1,");
            awaitReport(books, "\"number\":4}");
            assertEquals(List.of("r1", "r3", "r4"), reader.payloads());
            assertEquals(1, count("recordsUndeliverable"));
            job.cancel();
        }
    }

    @Test
    @Tag("long")
    void ofABatchOverTheMessageSizeLimitOnlyTheLargeRecordIsLeftOut() throws Exception {
        target.with("message_size_limit 65536").start();
        job.with("batch-records", "100").with("linger-ms", "1000");
        try (TestClient reader = new TestClient(target).listen("out");
                TestClient books = new TestClient(target).listen("speck/sent/#")) {
            start();
            client.publishNumbered("in", 1, 1, 6);
            awaitReport(books, "\"left_out\":1,");
            awaitReport(books, "\"number\":6}");
            Wait.until("all came", () -> reader.payloads().size() >= 5, reader::payloads);
            assertEquals(List.of("r1", "r3", "r4", "r5", "r6"), reader.payloads());
            job.cancel();
        }
    }

    @Test
    @Tag("long")
    void anExactJobFailsAtARecordOverTheMessageSizeLimit(@InjectMiniCluster MiniCluster flink)
            throws Exception {
        target.with("message_size_limit 65536").start();
        job.with("delivery", "exactly_once");
        start();
        client.publishNumbered("in", 1, 1, 4);
        String wanted = "cannot publish a record of " + LARGE + " bytes to ";
        Wait.until(
                "the job fails and says why",
                () -> {
                    var graph = flink.getExecutionGraph(job.client().getJobID()).get();
                    ErrorInfo error = graph.getFailureInfo();
                    String text = error == null ? "" : error.getExceptionAsString();
                    return text.contains(wanted) && text.contains("message_size_limit");
                });
    }

    /** A firewall that looks into packets, or a broker that closes the connection without a word. */
    @Test
    @Tag("long")
    void aRecordThatEndsEachConnectionIsLeftOut() throws Exception {
        target.start();
        try (CuttingProxy proxy = new CuttingProxy(target);
                TestClient reader = new TestClient(target).listen("out");
                TestClient books = new TestClient(target).listen("speck/sent/#")) {
            proxy.cutWhenever("xxxxx");
            job.with("sink-broker", proxy.address());
            start();
            client.publishNumbered("in", 1, 1, 4);
            awaitReport(books, "\"left_out\":1,");
            awaitReport(books, "\"number\":4}");
            List<String> others = List.of("r1", "r3", "r4");
            Wait.until("the reader has the others", () -> reader.distinct().equals(others));
            assertEquals(1, count("recordsUndeliverable"));
            job.cancel();
        }
    }

    @Test
    @Tag("long")
    void aBrokerThatIsKilledAgainAndAgainCostsNoRecord() throws Exception {
        target.start();
        job.with("sink-readers", "none");
        start();
        for (int kill = 0; kill < 6; kill++) {
            client.publishNumbered("in", 1, 3 + kill, 3 + kill);
            target.kill();
            target.start();
        }
        try (TestClient books = new TestClient(target).listen("speck/sent/#")) {
            awaitReport(books, "\"number\":6}");
        }
        assertEquals(0, count("recordsUndeliverable"));
    }

    @Test
    @Tag("long")
    void whatABrokerRefusesIsReportedUntilItTakesIt() throws Exception {
        Path acl = folder.resolve("acl");
        Files.writeString(acl, "topic readwrite speck/#\ntopic read out\n");
        target.with("acl_file " + acl).start();
        try (TestClient books = new TestClient(target).listen("speck/sent/#")) {
            start();
            client.publishNumbered("in", 1, 3, 5);
            awaitReport(books, "\"refused\":");
            awaitReport(books, "the broker refuses records: NOT_AUTHORIZED");
            assertTrue(problem("mqtt-sink").contains("NOT_AUTHORIZED"), problem("mqtt-sink"));
        }
        target.stop();
        Files.writeString(acl, "topic readwrite #\n");
        target.start();
        try (TestClient books = new TestClient(target).listen("speck/sent/#")) {
            awaitReport(books, "\"number\":3}");
            assertTrue(!books.lastByTopic().get(SENT).contains("problem"));
        }
        assertEquals("", problem("mqtt-sink"));
    }

    @ExtendWith(ShortReadyTimeout.class)
    @Test
    void aRefusedLoginIsReportedByTheEngine() throws Exception {
        target.with("allow_anonymous false").start();
        for (String delivery : List.of("at_least_once", "exactly_once")) {
            job = new TestJob(target, "in", target, "out").with("delivery", delivery).start();
            for (String operator : List.of("mqtt-source", "mqtt-sink")) {
                Wait.until(
                        operator + " says why under " + delivery,
                        () -> problem(operator).contains("refuses the login: NOT_AUTHORIZED"),
                        () -> problem(operator));
            }
            job.cancel();
        }
    }
}
