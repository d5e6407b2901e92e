package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.Message;
import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.Mqtt311Proxy;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import io.speck.mqtt.testing.TestRecords;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Messages that carry several records. */
class BatchedLinkTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final AtomicBoolean FAILED = new AtomicBoolean();
    private static final String TAKEN = "speck/taken/" + TestJob.CLIENT_ID;

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    private TestJob batched(String records, String lingerMs, String compression) {
        return job().with("batch-records", records)
                .with("linger-ms", lingerMs)
                .with("compression", compression);
    }

    @ParameterizedTest
    @CsvSource({
        "at_most_once, none",
        "at_least_once, none",
        "at_least_once, zstd",
        "exactly_once, none",
        "exactly_once, zstd"
    })
    void recordsGoTogetherInOrder(String delivery, String compression) throws Exception {
        startAndSubscribe(batched("100", "60000", compression).with("delivery", delivery));
        client.publishNumbered("in", 1, 1, 1000);
        awaitRecords(1000);
        assertEquals(records(1, 1000), out.distinct());
        assertTrue(out.messages() < 500, "messages: " + out.messages());
        List<String> stamps = out.stamps();
        assertEquals(1000, new HashSet<>(stamps).size(), "each has a number of its own");
    }

    @ParameterizedTest
    @Tag("long")
    @CsvSource({"0", "30"})
    void aMessageThatDoesNotFillGoesAllTheSame(String lingerMs) throws Exception {
        startAndSubscribe(batched("10000", lingerMs, "none").withoutCheckpoints());
        client.publishNumbered("in", 1, 1, 10);
        awaitRecords(10);
        client.publishNumbered("in", 1, 11, 20);
        awaitRecords(20);
        assertEquals(records(1, 20), recordsOut());
    }

    @Test
    @Tag("long")
    void aFullMessageDoesNotWait() throws Exception {
        startAndSubscribe(batched("10", "60000", "none").withoutCheckpoints());
        client.publishNumbered("in", 1, 1, 25);
        awaitRecords(20);
        assertTrue(out.messages() <= 3, "a first checkpoint that is late cuts one short, at most");
        job.stop(folder.toUri().toString()); // and the rest goes with the savepoint
        awaitRecords(25);
        assertTrue(out.messages() <= 4, "messages: " + out.messages());
    }

    @ParameterizedTest
    @CsvSource({"false", "true"})
    void aReaderTakesRecordsOneByOneAndDropsThoseItHas(boolean zstd) throws Exception {
        TestClient books = new TestClient(broker).listen(TAKEN);
        startAndSubscribe(job());
        client.publishTogether("in", 1, 1, TestRecords.batchOf(zstd, 1, 100)).join();
        client.publishTogether("in", 1, 51, TestRecords.batchOf(zstd, 51, 150)).join(); // cut differently
        client.publish("in", "r151", "p/1/151").join();
        client.publishTogether("in", 1, 153, TestRecords.batchOf(zstd, 153, 200)).join();
        awaitRecords(199);
        List<String> wanted = records(1, 200);
        wanted = new ArrayList<>(wanted);
        wanted.remove("r152");
        assertEquals(wanted, recordsOut());
        Wait.until("50 are dropped", () -> counter("repeatsDropped") == 50);
        Wait.until("all is told", () -> books.last().contains("\"messages\":199"), books::last);
        assertTrue(books.last().contains("\"missing\":{\"p\":{\"1\":1}}"), books.last());
        assertTrue(books.last().contains("\"taken\":{\"p\":{\"1\":151}}"), books.last());
        assertEquals(249, counter("Source: mqtt-source.*numRecordsIn$"));
        books.close();
    }

    @Test
    @Tag("long")
    void aFailureAmidstAMessageLosesNothing() throws Exception {
        FAILED.set(false);
        startAndSubscribe(batched("50", "20", "zstd").mapping(BatchedLinkTest::failing));
        for (int i = 0; i < 5; i++) {
            client.publishTogether("in", 1, 1 + 100 * i, TestRecords.batchOf(true, 1 + 100 * i, 100 + 100 * i))
                    .join();
        }
        Wait.until(
                "all came",
                () -> new HashSet<>(recordsOut()).size() == 500,
                () -> new HashSet<>(recordsOut()).size());
        assertTrue(FAILED.get());
    }

    private static byte[] failing(byte[] payload) {
        boolean fatal = new String(payload, StandardCharsets.UTF_8).equals("r250");
        if (fatal && FAILED.compareAndSet(false, true)) {
            throw new IllegalStateException("on purpose");
        }
        return payload;
    }

    @Test
    @Tag("long")
    void whatOnlyLooksLikeABatchIsLeftOutAndCounted() throws Exception {
        startAndSubscribe(job());
        client.publishTogether("in", 1, 1, new Message(Message.Format.ZSTD_BATCH, 3, new byte[] {9, 9}))
                .join();
        client.publishTogether("in", 1, 4, TestRecords.batchOf(false, 4, 6)).join();
        awaitRecords(3);
        assertEquals(records(4, 6), recordsOut());
        Wait.until("it is counted", () -> counter("batchesUnreadable") == 1);
        client.publish("in", "r7", null).join();
        awaitRecords(4);
        String savepoint = job.stop(folder.toUri().toString());
        job().from(savepoint).start();
        client.publish("in", "r8", null).join();
        awaitRecords(5);
        assertEquals(records(4, 8), recordsOut());
    }

    @Test
    @Tag("long")
    void overMqtt311RecordsGoOneByOne() throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker)) {
            // were a message cut short by a checkpoint, the last would not fill one
            batched("100", "300", "zstd").withoutCheckpoints().with("sink-broker", old.address());
            startAndSubscribe(job);
            client.publishNumbered("in", 1, 1, 300);
            awaitRecords(300);
            assertEquals(records(1, 300), recordsOut());
            assertEquals(300, out.messages());
        }
    }

    /** Nothing comes after them, and no checkpoint: the rest must go by itself. */
    @Test
    @Tag("long")
    void partsThatAreMoreThanTheWindowAllGo() throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker)) {
            batched("100", "300", "none").withoutCheckpoints().with("sink-broker", old.address());
            startAndSubscribe(job.with("sink-window", "10"));
            client.publishNumbered("in", 1, 1, 100);
            awaitRecords(100);
            assertEquals(records(1, 100), recordsOut());
        }
    }

    /**
     * The limit is known when records are given their numbers; not to a broker that comes later.
     */
    @ParameterizedTest
    @Tag("long")
    @CsvSource({"at_least_once", "exactly_once"})
    void whatIsTooLargeTogetherGoesOneByOne(String delivery) throws Exception {
        try (Mosquitto there = Mosquitto.started(folder)) {
            reserve(there, "reader", "out");
            job = new TestJob(broker, "in", there, "out").with("delivery", delivery);
            job.with("sink-readers", "some"); // the broker may come back without the session
            job.with("batch-records", "1000").with("linger-ms", "2000"); // the last do not fill one
            boolean exactly = delivery.equals("exactly_once");
            if (!exactly) {
                job.withoutCheckpoints(); // a checkpoint would wait for the broker, and nothing be taken in
            }
            startAndSubscribe(job);
            there.freeze();
            client.publishNumbered("in", 1, 1, 1000);
            Wait.until(
                    "some are taken in",
                    () -> counter("Source: mqtt-source.*numRecordsIn$") > (exactly ? 0 : 500));
            there.kill();
            there.with("max_packet_size 400").start();
            reserve(there, "reader", "out"); // the sink waits for it
            try (TestClient reader = new TestClient(there, "reader").listen("out")) {
                client.publishNumbered("in", 1, 1001, 2000);
                Wait.until(
                        "all came",
                        () -> new HashSet<>(reader.payloads()).containsAll(records(1, 2000)),
                        () -> reader.payloads().size());
            }
            job.cancel();
        }
    }
}
