package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.Mqtt311Proxy;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.ShortReadyTimeout;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Whole jobs between real brokers. */
class LinkFlowTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String TAKEN = "speck/taken/" + TestJob.CLIENT_ID;
    private static final String SENT = "speck/sent/" + TestJob.CLIENT_ID + "-out";

    private static final AtomicBoolean FAILED = new AtomicBoolean();

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    @Test
    void passesEverythingOnInOrderAndSaysSo() throws Exception {
        TestClient books = new TestClient(broker).listen("speck/#");
        startAndSubscribe(job());
        client.publishNumbered("in", 7, 1, 500);
        awaitRecords(500);
        assertEquals(records(1, 500), recordsOut());
        String last = out.stamps().get(out.stamps().size() - 1);
        String[] stamp = last.split("/");
        assertEquals("0a1b2c3d-test", stamp[0]);
        assertEquals(out.payloads().size(), Integer.parseInt(stamp[2]));
        assertEquals(1, Long.parseLong(stamp[1]) >> 22);
        Wait.until(
                "taken numbers are announced",
                () -> books.lastByTopic().getOrDefault(TAKEN, "").contains("\"p\":{\"7\":500}"),
                books::lastByTopic);
        String sent =
                "\"producer\":\"0a1b2c3d-test\",\"epoch\":" + stamp[1] + ",\"number\":" + stamp[2];
        Wait.until(
                "sent numbers are announced",
                () -> books.lastByTopic().getOrDefault(SENT, "").contains(sent),
                books::lastByTopic);
        assertTrue(books.lastByTopic().get(TAKEN).contains("\"missing\":{\"p\":{\"7\":0}}"));
        books.close();
    }

    @Test
    void dropsRepeats() throws Exception {
        startAndSubscribe(job());
        client.publishNumbered("in", 1, 1, 20);
        client.publishNumbered("in", 1, 5, 30);
        client.publishNumbered("in", 2, 31, 31);
        awaitRecords(31);
        assertEquals(records(1, 31), recordsOut());
    }

    @Test
    void acknowledgesOnlyAtCompletedCheckpoints() throws Exception {
        startAndSubscribe(job().withoutCheckpoints());
        client.publishNumbered("in", 1, 1, 50);
        awaitRecords(50);
        job.cancel();
        // without state, and nothing was acknowledged: all of it comes again
        job().start();
        awaitRecords(100);
        assertEquals(new HashSet<>(records(1, 50)), new HashSet<>(recordsOut().subList(50, 100)));
    }

    @Test
    @Tag("long")
    void receiveMaximumHoldsTheBrokerBack() throws Exception {
        startAndSubscribe(job().withoutCheckpoints().with("receive-maximum", "10"));
        client.publishNumbered("in", 1, 1, 40);
        awaitRecords(10);
        // the eleventh cannot come before an acknowledgement; a savepoint's stop gives it
        String savepoint = job.stop(folder.toUri().toString());
        assertEquals(records(1, 10), out.payloads());
        job().from(savepoint).start();
        awaitRecords(40);
        assertEquals(records(1, 40), recordsOut());
    }

    @Test
    void resumesFromASavepointWithoutLossOrRepeat() throws Exception {
        startAndSubscribe(job());
        client.publishNumbered("in", 1, 1, 300);
        String savepoint = job.stop(folder.toUri().toString());
        client.publishNumbered("in", 1, 301, 600);
        job().from(savepoint).start();
        client.publishNumbered("in", 1, 601, 700);
        awaitRecords(700);
        assertEquals(records(1, 700), recordsOut());
        HashSet<String> stamps = new HashSet<>(out.stamps());
        assertEquals(out.payloads().size(), stamps.size(), "no number is used twice");
    }

    @Test
    @Tag("long")
    void findsItsNumbersAgainOnAnotherBrokerAndTopic() throws Exception {
        startAndSubscribe(job());
        client.publishNumbered("in", 1, 1, 100);
        awaitRecords(100); // what is not taken before the stop is no repeat elsewhere
        String savepoint = job.stop(folder.toUri().toString());
        try (Mosquitto other = Mosquitto.started(folder);
                TestClient there = new TestClient(other);
                TestClient otherOut = new TestClient(other).listen("moved-out")) {
            reserve(other, TestJob.CLIENT_ID, "moved-in");
            there.publishNumbered("moved-in", 1, 51, 150); // the first fifty of them are repeats
            job = new TestJob(other, "moved-in", other, "moved-out").from(savepoint).start();
            otherOut.await(50);
            job.stop(folder.toUri().toString());
            assertEquals(records(101, 150), otherOut.payloads());
        }
    }

    @Test
    void whatTheReaderBeforeHasTakenIsDropped() throws Exception {
        startAndSubscribe(job().with("taken", "p/1/30/33-34"));
        client.publishNumbered("in", 1, 1, 40);
        awaitRecords(8);
        assertEquals(List.of("r31", "r32", "r35", "r36"), recordsOut().subList(0, 4));
        String savepoint = job.stop(folder.toUri().toString());
        startAndSubscribe(job().with("taken", "p/1/30/33-34").from(savepoint));
        client.publishNumbered("in", 1, 1, 42);
        awaitRecords(10);
        assertEquals(records(35, 42), recordsOut().subList(2, 10));
        assertEquals(40, counter("repeatsDropped"));
    }

    @Test
    void holdsRecordsWithoutReaderAndSendsThemInOrder() throws Exception {
        job = new TestJob(broker, "in", broker, "nobody").with("sink-readers", "some").start();
        Wait.until("the reader is there", () -> publishAndSee("probe"));
        Wait.until("a record is refused", () -> counter("recordsRefused") > 0);
        TestClient reader = new TestClient(broker).listen("nobody");
        client.publishNumbered("in", 1, 1, 20);
        Wait.until(
                "all came",
                () -> reader.payloads().containsAll(records(1, 20)),
                reader::payloads);
        assertEquals(
                records(1, 20),
                reader.payloads().stream().filter(text -> text.startsWith("r")).toList());
        List<Integer> numbers =
                reader.stamps().stream().map(s -> Integer.parseInt(s.split("/")[2])).toList();
        assertEquals(numbers.stream().sorted().toList(), numbers, "in order");
        assertEquals(1, numbers.get(0));
        reader.close();
    }

    @Test
    @Tag("long")
    void withoutReadersNobodyIsWaitedFor() throws Exception {
        TestClient books = new TestClient(broker).listen("speck/sent/#");
        job = new TestJob(broker, "in", broker, "nobody").with("sink-readers", "none").start();
        Wait.until("the reader is there", () -> publishAndSee("x"));
        books.await(1);
        books.close();
    }

    /** What is announced goes before the argument, also while the job runs. */
    @Test
    void learnsWhetherItsLinkHasReaders() throws Exception {
        TestClient books = new TestClient(broker).listen("speck/sent/#");
        job = new TestJob(broker, "in", broker, "nobody").with("sink-readers", "some").start();
        Wait.until("the reader is there", () -> publishAndSee("x"));
        Wait.until("a record is held", () -> counter("recordsRefused") > 0);
        client.retain("speck/readers/nobody", "none");
        books.await(1);
        client.retain("speck/readers/nobody", "some");
        long before = counter("recordsRefused");
        Wait.until(
                "records are held again",
                () -> publishAndSee("y") && counter("recordsRefused") > before);
        books.close();
    }

    @ExtendWith(ShortReadyTimeout.class)
    @Test
    @Tag("long")
    void waitsForABrokerThatIsAway() throws Exception {
        Mosquitto late = Mosquitto.in(folder);
        job = new TestJob(broker, "in", late, "out").start();
        Wait.until("the reader is there", () -> publishAndSee("early"));
        late.start();
        TestClient lateOut = new TestClient(late).listen("out");
        Wait.until(
                "records flow",
                () -> {
                    client.publish("in", "again", null).join();
                    return lateOut.payloads().contains("again");
                });
        assertEquals(JobStatus.RUNNING, job.status());
        lateOut.close();
        job.cancel();
        late.close();
    }

    @Test
    @Tag("long")
    void aBrokerRestartInTheFlowLosesNothing() throws Exception {
        startAndSubscribe(job());
        CompletableFuture<Void> feeding =
                CompletableFuture.runAsync(() -> client.publishNumbered("in", 1, 1, 20_000));
        awaitRecords(500);
        broker.stop();
        broker.start();
        feeding.get();
        Wait.until(
                "all came",
                () -> new HashSet<>(recordsOut()).size() == 20_000,
                () -> new HashSet<>(recordsOut()).size());
        // what a numbers-aware reader would see: nothing twice
        List<String> distinct = out.distinct();
        assertEquals(20_000, distinct.size());
        assertEquals(JobStatus.RUNNING, job.status());
    }

    @Test
    @Tag("long")
    void aLostSessionIsNoticed() throws Exception {
        startAndSubscribe(job());
        Wait.until("its session was not there at first", () -> counter("sessionsLost") == 1);
        broker.stop();
        broker.forgetEverything();
        broker.start();
        Wait.until("the alarm is raised", () -> counter("sessionsLost") == 2);
    }

    @Test
    void aFailedJobTakesUpWhereItsCheckpointWas() throws Exception {
        FAILED.set(false);
        startAndSubscribe(
                job().mapping(
                                payload -> {
                                    boolean fatal = new String(payload).equals("r150");
                                    if (fatal && FAILED.compareAndSet(false, true)) {
                                        throw new IllegalStateException("on purpose");
                                    }
                                    return payload;
                                }));
        client.publishNumbered("in", 1, 1, 300);
        Wait.until(
                "all came",
                () -> new HashSet<>(recordsOut()).size() == 300,
                () -> new HashSet<>(recordsOut()).size());
        assertTrue(FAILED.get());
    }

    @Test
    @Tag("long")
    void aBacklogBeyondTheReceiveMaximumComesThrough() throws Exception {
        // Mosquitto 2.0 sends more than the Receive Maximum then
        startAndSubscribe(job().with("receive-maximum", "50"));
        String savepoint = job.stop(folder.toUri().toString());
        client.publishNumbered("in", 1, 1, 5000);
        job().with("receive-maximum", "50").from(savepoint).start();
        awaitRecords(5000);
        assertEquals(records(1, 5000), recordsOut());
    }

    @Test
    @Tag("long")
    void atMostOnceUsesNoAcknowledgements() throws Exception {
        startAndSubscribe(job().with("delivery", "at_most_once"));
        client.publishNumbered("in", 1, 1, 100);
        awaitRecords(100);
        assertEquals(records(1, 100), recordsOut());
    }

    @ParameterizedTest
    @Tag("long")
    @EnumSource
    void fallsBackToMqtt311(Mqtt311Proxy.Refusal refusal) throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker, refusal);
                TestClient books = new TestClient(broker).listen("speck/#")) {
            job = new TestJob(broker, "in", broker, "out");
            job.with("source-broker", old.address()).with("sink-broker", old.address());
            startAndSubscribe(job);
            client.publishNumbered("in", 1, 1, 100);
            awaitRecords(100);
            assertEquals(records(1, 100), recordsOut());
            assertTrue(out.stamps().isEmpty());
            String savepoint = job.stop(folder.toUri().toString());
            client.publishNumbered("in", 1, 101, 120);
            job = new TestJob(broker, "in", broker, "out").from(savepoint);
            job.with("source-broker", old.address()).with("sink-broker", old.address()).start();
            awaitRecords(120);
            assertEquals(records(1, 120), recordsOut());
            job.cancel();
            assertTrue(books.lastByTopic().containsKey(TAKEN));
            assertFalse(books.lastByTopic().containsKey(SENT), "nothing was numbered");
        }
    }

    @Test
    @Tag("long")
    void anIntermediateSavepointDelaysAcknowledgementsOnly() throws Exception {
        startAndSubscribe(job().withoutCheckpoints());
        client.publishNumbered("in", 1, 1, 50);
        awaitRecords(50);
        job.client()
                .triggerSavepoint(folder.toUri().toString(), SavepointFormatType.CANONICAL)
                .get();
        client.publishNumbered("in", 1, 51, 60);
        String savepoint = job.stop(folder.toUri().toString());
        job().from(savepoint).start();
        client.publishNumbered("in", 1, 61, 70);
        awaitRecords(70);
        assertEquals(records(1, 70), recordsOut());
        assertEquals(0, counter("repeatsDropped"), "nothing came again");
    }

    @Test
    void aRecordTooLargeForTheBrokerIsLeftOut() throws Exception {
        startAndSubscribe(job().mapping(LinkFlowTest::enlarged).with("max-record-bytes", "1000"));
        client.publishNumbered("in", 1, 1, 3);
        awaitRecords(2);
        assertEquals(List.of("r1", "r3"), recordsOut());
        Wait.until("it is counted", () -> counter("recordsUndeliverable") == 1);
    }

    private static byte[] enlarged(byte[] payload) {
        return new String(payload).equals("r2") ? new byte[1001] : payload;
    }

    @Test
    @Tag("long")
    void twoHundredJobsLeaveNothingBehind() throws Exception {
        for (int i = 0; i < 20; i++) {
            job().start();
            job.cancel();
        }
        int threads = Thread.activeCount();
        for (int i = 0; i < 200; i++) {
            job().start();
            job.cancel();
        }
        Wait.until(
                "threads are as many as before",
                () -> ourThreads().isEmpty() && Thread.activeCount() <= threads + 5,
                () -> Thread.getAllStackTraces().keySet());
    }
}
