package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.connection.Supervisor;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Whole jobs with {@code --delivery exactly_once}. "Distinct" is what a reader gets that drops
 * repeats by their stamps; it also fails when one stamp has come with two payloads.
 */
class ExactlyOnceTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();
    private static final Map<Long, Integer> SEEN_AT = new ConcurrentHashMap<>(); // by checkpoint
    private static final Set<String> FATAL = ConcurrentHashMap.newKeySet();

    private String batch = "1";
    private String compression = "none";
    private Mosquitto there;
    private TestClient thereOut;

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    @BeforeEach
    void openThere() throws Exception {
        SEEN.clear();
        SEEN_AT.clear();
        FATAL.clear();
        there = Mosquitto.started(folder);
        thereOut = new TestClient(there).listen("out");
    }

    @AfterEach
    void closeThere() throws Exception {
        job.cancel();
        thereOut.close();
        there.close();
    }

    /** Notes what it sees; no two runs give a record the same form; some records kill it once. */
    private static final class Observer
            implements MapFunction<byte[], byte[]>, CheckpointedFunction {
        @Override
        public byte[] map(byte[] payload) {
            String text = new String(payload, StandardCharsets.UTF_8);
            SEEN.add(text);
            if (FATAL.remove(text)) {
                throw new IllegalStateException("on purpose");
            }
            return (text + " " + UUID.randomUUID()).getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            SEEN_AT.put(context.getCheckpointId(), SEEN.size());
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}
    }

    private TestJob exactly(Mosquitto to, String topic) {
        job = new TestJob(broker, "in", to, topic).mapping(new Observer());
        return job.with("delivery", "exactly_once")
                .with("batch-records", batch)
                .with("compression", compression)
                .keeping(folder);
    }

    private void sending(String records, String how) {
        batch = records;
        compression = how;
    }

    private void startAndFeed(TestJob started, int from, int to) throws Exception {
        started.start();
        Wait.until("the reader is there", () -> publishAndSee("hello"));
        client.publishNumbered("in", 1, from, to);
    }

    private static List<String> distinctRecords(TestClient at) {
        return at.distinct().stream()
                .filter(text -> text.startsWith("r"))
                .map(text -> text.split(" ")[0])
                .toList();
    }

    private static void awaitDistinct(TestClient at, int count) throws Exception {
        Wait.until(
                count + " distinct records came",
                () -> distinctRecords(at).size() >= count,
                () -> distinctRecords(at));
    }

    /** What came over two links, the one after the other. */
    private static List<String> joined(TestClient first, TestClient second) {
        List<String> all = new ArrayList<>(distinctRecords(first));
        all.addAll(distinctRecords(second));
        return all;
    }

    private static void awaitJoined(int count, TestClient first, TestClient second)
            throws Exception {
        Wait.until(
                count + " records came over the two links",
                () -> joined(first, second).size() >= count,
                () -> joined(first, second));
        assertEquals(records(1, count), joined(first, second));
    }

    @Test
    void publishesEachRecordOnceInOrderAndSaysSo() throws Exception {
        TestClient books = new TestClient(broker).listen("speck/sent/#");
        startAndFeed(exactly(broker, "out"), 1, 500);
        awaitDistinct(out, 500);
        assertEquals(records(1, 500), distinctRecords(out));
        List<String> stamps = out.stamps();
        assertEquals(stamps.size(), new HashSet<>(stamps).size(), "nothing came twice");
        String[] last = stamps.get(stamps.size() - 1).split("/");
        assertEquals(stamps.size(), Integer.parseInt(last[2]), "numbers have no holes");
        String sent = "\"epoch\":" + last[1] + ",\"number\":" + last[2] + "}";
        Wait.until(
                "the last number is announced",
                () -> books.lastByTopic().values().stream().anyMatch(text -> text.endsWith(sent)),
                books::lastByTopic);
        books.close();
    }

    @Test
    void aStopWithSavepointPublishesTheLastRecordsBeforeTheJobEnds() throws Exception {
        startAndSubscribe(exactly(broker, "out").withoutCheckpoints()); // the first checkpoint is over
        client.publishNumbered("in", 1, 1, 50);
        Wait.until("all are taken", () -> SEEN.containsAll(records(1, 50)));
        assertEquals(List.of(), distinctRecords(out), "no checkpoint covers them yet");
        String savepoint = job.stop(folder.toUri().toString());
        awaitDistinct(out, 50);
        exactly(broker, "out").from(savepoint).start();
        client.publishNumbered("in", 1, 51, 60);
        awaitDistinct(out, 60);
        assertEquals(records(1, 60), distinctRecords(out));
        assertEquals(1, epochs(out).size(), "epoch and number go on");
    }

    private static Set<String> epochs(TestClient at) {
        Set<String> epochs = new HashSet<>();
        at.stamps().forEach(stamp -> epochs.add(stamp.split("/")[1]));
        return epochs;
    }

    @ParameterizedTest
    @CsvSource({"1, none", "20, zstd"})
    void failuresNeitherLoseNorRepeat(String batch, String compression) throws Exception {
        sending(batch, compression);
        FATAL.addAll(List.of("r45", "r46", "r135", "r180", "r225"));
        startAndFeed(exactly(broker, "out"), 1, 30);
        for (int done = 30; done < 300; done += 30) {
            client.publishNumbered("in", 1, done + 1, done + 30);
            awaitDistinct(out, done + 30);
        }
        assertEquals(records(1, 300), distinctRecords(out));
        assertTrue(FATAL.isEmpty(), "all failures have happened");
        assertEquals(1, epochs(out).size());
    }

    /** Ends with a complete checkpoint that is not, or not wholly, published. */
    private String killedInTheCommit(int records) throws Exception {
        startAndFeed(exactly(there, "out"), 1, 1);
        awaitDistinct(thereOut, 1);
        awaitAcknowledged();
        int before = SEEN.size();
        there.freeze();
        client.publishNumbered("in", 1, 2, records);
        Wait.until(
                "a checkpoint covers some",
                () -> SEEN_AT.getOrDefault(lastCompletedCheckpoint(), 0) > before);
        System.setProperty(Supervisor.CLOSE_TIMEOUT_PROPERTY, "100"); // it would be in vain
        try {
            job.cancel();
        } finally {
            System.clearProperty(Supervisor.CLOSE_TIMEOUT_PROPERTY);
        }
        return job.newestCheckpoint(folder);
    }

    @ParameterizedTest
    @Tag("long")
    @CsvSource({"1, none", "30, none", "1000, zstd"})
    void killedBetweenCheckpointAndCommit(String batch, String compression) throws Exception {
        sending(batch, compression);
        String checkpoint = killedInTheCommit(100);
        there.thaw();
        sending("7", "zstd"); // what a checkpoint holds goes as it was to go
        exactly(there, "out").from(checkpoint).start();
        awaitDistinct(thereOut, 100);
        assertEquals(records(1, 100), distinctRecords(thereOut));
        assertEquals(1, epochs(thereOut).size());
    }

    /** No two runs of the job would make the same bytes: see what it is mapped with. */
    @ParameterizedTest
    @Tag("long")
    @CsvSource({"1, none", "30, zstd"})
    void whatIsPublishedOnceMoreIsTheSameToTheByte(String batch, String compression)
            throws Exception {
        sending(batch, compression);
        startAndFeed(exactly(there, "out"), 1, 100);
        awaitDistinct(thereOut, 100);
        job.cancel();
        String checkpoint = job.newestCheckpoint(folder);
        exactly(there, "out").from(checkpoint);
        there.kill();
        there.forgetEverything(); // so that nothing is known to have arrived
        there.start();
        int before = thereOut.stamps().size();
        thereOut.listen("out");
        job.start();
        client.publishNumbered("in", 1, 101, 120);
        awaitDistinct(thereOut, 120);
        String savepoint = job.stop(folder.toUri().toString());
        // its link has moved to another broker
        exactly(broker, "out").with("sink-client-id", "elsewhere-out").from(savepoint).start();
        client.publishNumbered("in", 1, 121, 140);
        awaitJoined(140, thereOut, out); // which fails when a stamp has come with other bytes
        assertTrue(thereOut.stamps().size() > before + 20, "some came once more");
    }

    @Test
    void whatIsLeftForTheOldLinkGoesThereFirst() throws Exception {
        String checkpoint = killedInTheCommit(100);
        there.thaw();
        there.stop();
        exactly(broker, "out").with("sink-client-id", "elsewhere-out").from(checkpoint).start();
        client.publishNumbered("in", 1, 101, 120);
        assertEquals(JobStatus.RUNNING, job.status());
        assertEquals(List.of(), distinctRecords(out), "the old link's broker is away");
        there.start();
        awaitJoined(120, thereOut, out);
        assertTrue(distinctRecords(out).contains("r120"));
    }

    @Test
    @Tag("long")
    void anotherTopicOfTheSameBrokerIsAnotherLink() throws Exception {
        String checkpoint = killedInTheCommit(100);
        there.thaw();
        TestClient moved = new TestClient(there).listen("moved");
        exactly(there, "moved").from(checkpoint).start();
        client.publishNumbered("in", 1, 101, 120);
        awaitJoined(120, thereOut, moved);
        assertTrue(distinctRecords(moved).contains("r120"));
        moved.close();
    }

    @Test
    @Tag("long")
    void anOldLinkWithoutReadersHoldsNothingUpWhenItsRecordsHadArrived() throws Exception {
        startAndFeed(exactly(there, "out").withoutCheckpoints(), 1, 50);
        Wait.until("all are taken", () -> SEEN.containsAll(records(1, 50)));
        String savepoint = job.stop(folder.toUri().toString());
        awaitDistinct(thereOut, 50);
        thereOut.close(); // the reader has everything, and leaves
        exactly(broker, "out")
                .with("sink-client-id", "elsewhere-out")
                .with("sink-readers", "some")
                .from(savepoint)
                .start();
        client.publishNumbered("in", 1, 51, 60);
        awaitDistinct(out, 10);
        assertEquals(records(51, 60), distinctRecords(out));
        thereOut = new TestClient(there);
    }

    @Test
    @Tag("long")
    void theDeliveryModeChangesWithoutLoss() throws Exception {
        String[] modes = {"at_least_once", "exactly_once", "exactly_once", "at_least_once"};
        String savepoint = null;
        int done = 0;
        for (String mode : modes) {
            exactly(broker, "out").with("delivery", mode);
            if (savepoint != null) {
                job.from(savepoint);
            }
            startAndFeed(job, done + 1, done + 50);
            done += 50;
            awaitDistinct(out, done);
            savepoint = job.stop(folder.toUri().toString());
            assertNamesNoClass(savepoint);
        }
        assertEquals(records(1, done), distinctRecords(out));
        List<Long> epochs = epochs(out).stream().map(Long::parseLong).sorted().toList();
        assertEquals(3, epochs.size(), "the second exactly_once goes on where the first was");
        String last = out.stamps().get(out.stamps().size() - 1).split("/")[1];
        assertEquals(epochs.stream().max(Comparator.naturalOrder()).get(), Long.valueOf(last));
    }

    /** Classes of the connector may be renamed: its state must still be found. */
    private static void assertNamesNoClass(String savepoint) throws Exception {
        Path metadata = Path.of(URI.create(savepoint)).resolve("_metadata");
        String text = Files.readString(metadata, StandardCharsets.ISO_8859_1);
        assertFalse(text.contains("io.speck"), "state names a class of ours");
        assertTrue(text.contains("org.apache.flink"), "it would be seen");
    }

    @Test
    @Tag("long")
    void whatExactlyOnceLeavesAnotherModePublishes() throws Exception {
        String checkpoint = killedInTheCommit(100);
        there.thaw();
        exactly(there, "out").with("delivery", "at_least_once").from(checkpoint).start();
        client.publishNumbered("in", 1, 101, 120);
        awaitDistinct(thereOut, 120);
        assertEquals(records(1, 120), distinctRecords(thereOut));
        assertEquals(2, epochs(thereOut).size());
    }

    @Test
    @Tag("long")
    void aBrokerThatIsAwayHoldsTheJobUpAndDoesNotFailIt() throws Exception {
        startAndFeed(exactly(there, "out"), 1, 10);
        awaitDistinct(thereOut, 10);
        awaitAcknowledged(); // else the commit may wait for its announcement, and take nothing
        int before = SEEN.size();
        there.stop();
        client.publishNumbered("in", 1, 11, 40);
        Wait.until("some are taken", () -> SEEN.size() > before);
        there.start();
        awaitDistinct(thereOut, 40);
        assertEquals(records(1, 40), distinctRecords(thereOut));
        assertEquals(JobStatus.RUNNING, job.status());
    }
}
