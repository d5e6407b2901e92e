package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.CuttingProxy;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.ShortReadyTimeout;
import io.speck.mqtt.testing.TestCertificate;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.execution.ExecutionState;
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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Links whose readers come and go, whose connections break, and whose jobs are slow. */
class LinkTroubleTest {
    private static final String CREDENTIALS = "speck.credentials.dir";
    private static final String TAKEN = "speck/taken/" + TestJob.CLIENT_ID;
    private static final String SENT = "speck/sent/" + TestJob.CLIENT_ID + "-out";
    private static final String READERS = "speck/readers/out";

    private static final ReportedMetrics METRICS = new ReportedMetrics();
    private static volatile CountDownLatch gate = new CountDownLatch(0);

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    @TempDir Path folder;
    private Mosquitto broker;
    private TestClient client;
    private TestClient books;
    private TestJob job;

    @BeforeEach
    void open() throws Exception {
        begin(Mosquitto.in(folder));
    }

    private void begin(Mosquitto at) throws Exception {
        broker = at.start();
        client = new TestClient(broker);
        books = new TestClient(broker).listen("speck/taken/#").listen("speck/sent/#");
        job = new TestJob(broker, "in", broker, "out");
    }

    @AfterEach
    void close() throws Exception {
        gate.countDown();
        job.cancel(); // also when it was not started
        client.close();
        books.close();
        broker.close();
    }

    /** Everything that comes is counted from here on. */
    private void startAndSubscribe() throws Exception {
        job.start();
        Wait.until("the reader is there", () -> value("connected", "mqtt-source") == 1);
    }

    private static List<String> records(int from, int to) {
        return IntStream.rangeClosed(from, to).mapToObj(i -> "r" + i).toList();
    }

    private long value(String name) {
        return value(name, "");
    }

    /** Of the running job; -1 when it is not there. */
    private long value(String name, String operator) {
        return METRICS.reporter().findMetrics(job.client().getJobID(), name).entrySet().stream()
                .filter(entry -> entry.getKey().contains(operator))
                .mapToLong(entry -> number(entry.getValue()))
                .max()
                .orElse(-1);
    }

    private static long number(Metric metric) {
        return metric instanceof Counter counter
                ? counter.getCount()
                : ((Number) ((Gauge<?>) metric).getValue()).longValue();
    }

    private void awaitSaid(String topic, String text) throws Exception {
        Wait.until(
                topic + " says " + text,
                () -> books.lastByTopic().getOrDefault(topic, "").contains(text),
                books::lastByTopic);
    }

    @ParameterizedTest
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void aLinkThatLosesItsLastReaderHoldsNobodyUp(String delivery) throws Exception {
        job.with("delivery", delivery);
        job.with("sink-readers", "some");
        startAndSubscribe();
        client.publishNumbered("in", 1, 1, 20);
        Wait.until("records are held", () -> value("recordsRefused") > 0);
        client.retain(READERS, "none");
        awaitSaid(SENT, "\"number\":20");
        client.publishNumbered("in", 1, 21, 30);
        awaitSaid(SENT, "\"number\":30");
    }

    @Test
    @Tag("long")
    void aLinkThatGetsItsFirstReaderHoldsRecordsForIt() throws Exception {
        job.with("sink-readers", "none");
        startAndSubscribe();
        client.publishNumbered("in", 1, 1, 5);
        awaitSaid(SENT, "\"number\":5");
        client.retain(READERS, "some");
        Wait.until(
                "records are held",
                () -> {
                    client.publish("in", "x", null).join();
                    return value("recordsRefused") > 0;
                });
        client.publishNumbered("in", 1, 6, 25);
        try (TestClient reader = new TestClient(broker).listen("out")) {
            Wait.until(
                    "all came",
                    () -> reader.payloads().containsAll(records(6, 25)),
                    reader::payloads);
        }
    }

    @Test
    @Tag("long")
    void whatIsSaidOfReadersCountsFromTheFirstRecordOn() throws Exception {
        client.retain(READERS, "some");
        job.with("sink-readers", "none");
        startAndSubscribe();
        client.publishNumbered("in", 1, 1, 20);
        Wait.until("records are held", () -> value("recordsRefused") > 0);
        try (TestClient reader = new TestClient(broker).listen("out")) {
            reader.await(20);
            assertEquals(records(1, 20), reader.payloads());
        }
    }

    @Test
    @Tag("long")
    void aSlowJobTakesABoundedBacklog() throws Exception {
        gate = new CountDownLatch(1);
        job.mapping(LinkTroubleTest::whenOpen);
        startAndSubscribe();
        byte[] large = new byte[600_000];
        Arrays.fill(large, (byte) 'x');
        String text = new String(large, StandardCharsets.US_ASCII);
        try (TestClient reader = new TestClient(broker).listen("out")) {
            for (int i = 1; i <= 60; i++) {
                client.publish("in", text, "p/1/" + i).join();
            }
            long most = 16 << 20;
            Wait.until("much waits", () -> value("bytesWaiting") >= most);
            assertTrue(value("bytesWaiting") <= most + large.length + (1 << 16));
            gate.countDown();
            reader.await(60);
        }
    }

    /** Three pings take more than twice the keep-alive time. */
    @Test
    @Tag("long")
    void aLongPauseIsNotTakenForADeadBroker() throws Exception {
        gate = new CountDownLatch(1);
        job.mapping(LinkTroubleTest::whenOpen);
        try (CuttingProxy proxy = new CuttingProxy(broker);
                TestClient reader = new TestClient(broker).listen("out")) {
            job.with("source-broker", proxy.address());
            startAndSubscribe();
            for (int i = 1; i <= 60; i++) {
                client.publish("in", "x".repeat(600_000), "p/1/" + i).join();
            }
            Wait.until("pings went out", () -> proxy.pings() >= 3, proxy::pings);
            assertEquals(1, value("connections", "mqtt-source"));
            gate.countDown();
            reader.await(60);
            assertEquals(1, value("connections", "mqtt-source"));
            job.cancel();
        }
    }

    private static byte[] whenOpen(byte[] payload) throws InterruptedException {
        gate.await();
        return payload;
    }

    /** Tasks that run take input: whoever sees them run may feed them. */
    @Test
    void aJobThatRunsHasSubscribed(@InjectMiniCluster MiniCluster flink) throws Exception {
        job.start();
        awaitAllTasksRunning(flink);
        client.publishNumbered("in", 1, 1, 5); // nothing is kept for who has not subscribed
        awaitSaid(TAKEN, "\"p\":{\"1\":5}");
    }

    private void awaitAllTasksRunning(MiniCluster flink) throws Exception {
        Wait.until(
                "all tasks run",
                () -> {
                    var graph = flink.getExecutionGraph(job.client().getJobID());
                    for (var vertex : graph.get().getAllExecutionVertices()) {
                        if (vertex.getExecutionState() != ExecutionState.RUNNING) {
                            return false;
                        }
                    }
                    return true;
                });
    }

    @ExtendWith(ShortReadyTimeout.class)
    @Test
    @Tag("long")
    void aSourceWhoseBrokerIsAwayStartsAndTriesOn(@InjectMiniCluster MiniCluster flink)
            throws Exception {
        Mosquitto late = Mosquitto.in(folder);
        job = new TestJob(late, "in", broker, "out").start();
        awaitAllTasksRunning(flink);
        late.start();
        try (TestClient feeder = new TestClient(late);
                TestClient lateBooks = new TestClient(late).listen("speck/taken/#")) {
            Wait.until("the reader is there", () -> value("connected", "mqtt-source") == 1);
            feeder.publishNumbered("in", 1, 1, 5);
            Wait.until(
                    "they are taken",
                    () -> lateBooks.lastByTopic().getOrDefault(TAKEN, "").contains("{\"1\":5}"),
                    lateBooks::lastByTopic);
            job.cancel();
        }
        late.close();
    }

    /** Without waiting for the end of the wait. */
    @Test
    void aJobThatWaitsForItsBrokersCanBeCancelled() throws Exception {
        Mosquitto never = Mosquitto.in(folder);
        job = new TestJob(never, "in", never, "out").start();
        Wait.until(
                "its network threads are there",
                () ->
                        Thread.getAllStackTraces().keySet().stream()
                                .anyMatch(thread -> thread.getName().startsWith("speck-mqtt-")));
        job.cancel();
        Wait.until(
                "its network threads have gone",
                () ->
                        Thread.getAllStackTraces().keySet().stream()
                                .noneMatch(thread -> thread.getName().startsWith("speck-mqtt-")));
    }

    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void recordsThatNobodyReadsAreCountedWhereTheSinkSpeaks(String delivery) throws Exception {
        job.with("delivery", delivery).with("sink-readers", "some");
        startAndSubscribe();
        try (TestClient reader = new TestClient(broker).listen("out")) {
            client.publishNumbered("in", 1, 1, 3);
            awaitSaid(SENT, "\"number\":3");
            awaitSaid(SENT, "\"unread\":0");
        }
        client.publishNumbered("in", 1, 4, 20);
        awaitSaid(SENT, "\"unread\":17");
        awaitSaid(SENT, "\"number\":3}"); // which is how far it has got
        try (TestClient reader = new TestClient(broker).listen("out")) {
            awaitSaid(SENT, "\"number\":20");
            awaitSaid(SENT, "\"unread\":0");
        }
    }

    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void theLastNumberIsAnnouncedThoughTheConnectionBreaks(String delivery) throws Exception {
        job.with("delivery", delivery);
        try (CuttingProxy proxy = new CuttingProxy(broker)) {
            job.with("sink-broker", proxy.address());
            startAndSubscribe();
            proxy.cutBefore("speck/sent/");
            client.publishNumbered("in", 1, 1, 7);
            Wait.until("the connection is cut", proxy::hasCut);
            awaitSaid(SENT, "\"number\":7");
            job.cancel();
        }
    }

    @Test
    @Tag("long")
    void anIdleReaderAnnouncesAgainOverANewConnection() throws Exception {
        try (CuttingProxy proxy = new CuttingProxy(broker)) {
            job.with("source-broker", proxy.address());
            startAndSubscribe();
            client.publishNumbered("in", 1, 1, 7);
            awaitSaid(TAKEN, "\"p\":{\"1\":7}");
            client.retain(TAKEN, "");
            Wait.until("it is forgotten", () -> books.lastByTopic().get(TAKEN).isEmpty());
            proxy.cut();
            awaitSaid(TAKEN, "\"p\":{\"1\":7}");
            job.cancel();
        }
    }

    @Test
    @Tag("long")
    void aSessionLostJustBeforeAnotherBreakIsNoticed() throws Exception {
        try (CuttingProxy proxy = new CuttingProxy(broker)) {
            job.with("source-broker", proxy.address());
            startAndSubscribe();
            broker.stop();
            broker.forgetEverything();
            proxy.cutBeforeSubscribe();
            broker.start();
            Wait.until("the connection is cut", proxy::hasCut);
            Wait.until("it is made again", () -> value("connected", "mqtt-source") == 1);
            assertEquals(2, value("sessionsLost")); // one at the first start: none was reserved
            job.cancel();
        }
    }

    @Test
    void aRecordOverTheBrokersPacketSizeIsLeftOutAndLeavesNoHole() throws Exception {
        close();
        begin(Mosquitto.in(folder).with("max_packet_size 2000"));
        job.mapping(LinkTroubleTest::enlarged);
        startAndSubscribe();
        Wait.until("the sink is connected", () -> value("connected", "mqtt-sink") == 1);
        try (TestClient reader = new TestClient(broker).listen("out")) {
            client.publishNumbered("in", 1, 1, 4);
            reader.await(2);
            Wait.until("it is counted", () -> value("recordsUndeliverable") == 2);
            assertEquals("r1", reader.payloads().get(0));
            assertEquals("r4", reader.payloads().get(1));
            List<Integer> numbers =
                    reader.stamps().stream().map(s -> Integer.parseInt(s.split("/")[2])).toList();
            assertEquals(List.of(1, 2), numbers);
            assertEquals(1, value("connections", "mqtt-sink"));
        }
    }

    @Test
    @Tag("long")
    void anExactJobFailsAtARecordOverTheBrokersPacketSizeBeforeItHasANumber(
            @InjectMiniCluster MiniCluster flink) throws Exception {
        close();
        begin(Mosquitto.in(folder).with("max_packet_size 2000"));
        job.with("delivery", "exactly_once").mapping(LinkTroubleTest::enlarged);
        startAndSubscribe();
        client.publishNumbered("in", 1, 1, 4);
        int most = awaitTooLarge(flink, 1980);
        job.cancel();
        job = new TestJob(broker, "in", broker, "out").mapping(LinkTroubleTest::enlarged);
        job.with("delivery", "exactly_once").with("max-record-bytes", Integer.toString(most));
        try (TestClient reader = new TestClient(broker).listen("out")) {
            job.start();
            reader.await(2);
            Wait.until("they are counted", () -> value("recordsUndeliverable") == 2);
            assertEquals(List.of("r1", "r4"), reader.payloads());
            awaitSaid(SENT, "\"number\":2}");
        }
    }

    /** They have their numbers: nothing is left out of what a checkpoint holds. */
    @Test
    @Tag("long")
    void anExactJobFailsUntilTheBrokerTakesWhatItTookBefore(@InjectMiniCluster MiniCluster flink)
            throws Exception {
        job.with("delivery", "exactly_once").mapping(LinkTroubleTest::enlarged);
        Mosquitto there = Mosquitto.started(folder);
        JobTest.reserve(there, "reader", "out");
        job.with("sink-broker", there.address()).keeping(folder);
        startAndSubscribe();
        job.awaitCheckpoint(folder);
        long before = job.newestCheckpointBytes(folder);
        there.freeze();
        client.publishNumbered("in", 1, 2, 2);
        Wait.until("it has a number", () -> job.newestCheckpointBytes(folder) >= before + 1980);
        there.kill();
        there.with("max_packet_size 2000").start();
        awaitTooLarge(flink, 1980);
        there.stop();
        there.with().start();
        client.publishNumbered("in", 1, 3, 4);
        try (TestClient books = new TestClient(there).listen("speck/sent/#")) {
            Wait.until(
                    "all are out",
                    () -> books.lastByTopic().getOrDefault(SENT, "").endsWith("\"number\":3}"),
                    books::lastByTopic);
        }
        job.cancel();
        there.close();
    }

    /** Returns the limit that the job names. */
    private int awaitTooLarge(MiniCluster flink, int bytes) throws Exception {
        Pattern wanted =
                Pattern.compile(
                        "cannot publish a record of %d bytes to .* takes at most (\\d+) bytes"
                                .formatted(bytes));
        Matcher[] found = new Matcher[1];
        Wait.until(
                "the job fails and says why",
                () -> {
                    var graph = flink.getExecutionGraph(job.client().getJobID()).get();
                    ErrorInfo error = graph.getFailureInfo();
                    String text = error == null ? "" : error.getExceptionAsString();
                    return (found[0] = wanted.matcher(text)).find();
                });
        return Integer.parseInt(found[0].group(1));
    }

    /** r2 fits into a packet without its stamp only, and r3 not at all. */
    private static byte[] enlarged(byte[] payload) {
        return switch (new String(payload, StandardCharsets.US_ASCII)) {
            case "r2" -> new byte[1980];
            case "r3" -> new byte[3000];
            default -> payload;
        };
    }

    @Test
    void encryptedLinksCarryRecords() throws Exception {
        close();
        int port = freePort();
        TestCertificate certificate = TestCertificate.in(folder);
        begin(
                Mosquitto.in(folder)
                        .with(
                                "listener " + port + " 127.0.0.1",
                                "certfile " + certificate.file(),
                                "keyfile " + certificate.key()));
        Path credentials = Files.createDirectory(folder.resolve("credentials"));
        Files.copy(certificate.file(), credentials.resolve("ca.pem"));
        String address = "ssl://127.0.0.1:" + port;
        Files.writeString(credentials.resolve("site"), "address=" + address + "\nca=ca.pem\n");
        System.setProperty(CREDENTIALS, credentials.toString());
        try (TestClient reader = new TestClient(broker).listen("out")) {
            job.with("source-broker", address).with("sink-broker", address);
            startAndSubscribe();
            client.publishNumbered("in", 1, 1, 20);
            reader.await(20);
            assertEquals(records(1, 20), reader.payloads());
        } finally {
            System.clearProperty(CREDENTIALS);
        }
    }

    private static int freePort() throws Exception {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return free.getLocalPort();
        }
    }
}
