package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** Whole jobs between real brokers. */
class LinkFlowTest {
    private static final Duration NEVER = Duration.ofHours(1);
    private static final String TAKEN = "speck/taken/" + TestJob.CLIENT_ID;
    private static final String SENT = "speck/sent/" + TestJob.CLIENT_ID + "-out";

    @RegisterExtension
    static final MiniClusterExtension CLUSTER =
            new MiniClusterExtension(
                    new MiniClusterResourceConfiguration.Builder()
                            .setNumberTaskManagers(1)
                            .setNumberSlotsPerTaskManager(2)
                            .build());

    @TempDir Path folder;
    private Mosquitto broker;
    private TestClient client;
    private TestClient out;
    private TestJob job;

    @BeforeEach
    void open() throws Exception {
        broker = Mosquitto.started(folder);
        client = new TestClient(broker);
        out = new TestClient(broker).listen("out");
    }

    @AfterEach
    void close() throws Exception {
        if (job != null) {
            job.cancel();
        }
        client.close();
        out.close();
        broker.close();
        Wait.until("no network thread is left", () -> ourThreads().isEmpty(), this::ourThreads);
    }

    private List<String> ourThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter(name -> name.startsWith("speck-mqtt-"))
                .toList();
    }

    private TestJob job() {
        job = new TestJob(broker, "in", broker, "out");
        return job;
    }

    /** A job is RUNNING before its reader has subscribed. */
    private void startAndSubscribe(TestJob started) throws Exception {
        started.start();
        TestClient probe = new TestClient(broker).listen(TAKEN);
        Wait.until(
                "the reader takes a message",
                () -> {
                    client.publish("in", "hello", null).join();
                    return out.payloads().contains("hello");
                });
        probe.close();
    }

    private static List<String> records(int from, int to) {
        return IntStream.rangeClosed(from, to).mapToObj(i -> "r" + i).toList();
    }

    private List<String> recordsOut() {
        return out.payloads().stream().filter(payload -> payload.startsWith("r")).toList();
    }

    private void awaitRecords(int count) throws Exception {
        Wait.until(count + " records came", () -> recordsOut().size() >= count, this::recordsOut);
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
        assertEquals(1, Long.parseLong(stamp[1]) >> 32);
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
        startAndSubscribe(job().every(NEVER));
        client.publishNumbered("in", 1, 1, 50);
        awaitRecords(50);
        job.cancel();
        // without state, and nothing was acknowledged: all of it comes again
        job().start();
        awaitRecords(100);
        assertEquals(new HashSet<>(records(1, 50)), new HashSet<>(recordsOut().subList(50, 100)));
    }

    @Test
    void receiveMaximumHoldsTheBrokerBack() throws Exception {
        startAndSubscribe(job().every(NEVER).with("receive-maximum", "10"));
        client.publishNumbered("in", 1, 1, 40);
        awaitRecords(1);
        Wait.until("ten are out", () -> out.payloads().size() >= 10);
        // the eleventh cannot come before an acknowledgement; a savepoint's stop gives it
        String savepoint = job.stop(folder.toUri().toString());
        assertEquals(10, out.payloads().size());
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
}
