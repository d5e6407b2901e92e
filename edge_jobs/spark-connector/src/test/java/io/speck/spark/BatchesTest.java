package io.speck.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.TestClient;
import io.speck.spark.files.CheckpointFolder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Batches between two links of a real broker, and jobs that end at any step of them. */
class BatchesTest {
    @TempDir Path temp;
    private Mosquitto broker;
    private TestClient client;
    private final SimulatedQuery.Log log = new SimulatedQuery.Log();

    @BeforeEach
    void start() throws Exception {
        broker = Mosquitto.started(temp);
        client = new TestClient(broker).listen("out");
        try (SimulatedQuery query = open()) { // makes the reader's session
            query.run(SimulatedQuery.Step.COMMITTED);
        }
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        broker.close();
    }

    private SimulatedQuery open() {
        return new SimulatedQuery(temp.resolve("query"), log, contract("exactly_once"));
    }

    private Map<String, String> contract(String delivery) {
        return Map.ofEntries(
                Map.entry("job-name", "j"),
                Map.entry("client-id", "speck-0-j-aaaa"),
                Map.entry("epoch", "1"),
                Map.entry("source-broker", broker.address()),
                Map.entry("source-topic", "in"),
                Map.entry("sink-broker", broker.address()),
                Map.entry("sink-topic", "out"),
                Map.entry("delivery", delivery),
                Map.entry("sink-readers", "some"));
    }

    private static List<String> numbered(int to) {
        return IntStream.rangeClosed(1, to).mapToObj(number -> "r" + number).toList();
    }

    private void runUntil(SimulatedQuery query, int records) throws Exception {
        Wait.until(
                records + " records came out",
                () -> {
                    query.run(SimulatedQuery.Step.COMMITTED);
                    return client.distinct().size() >= records;
                },
                client::payloads);
    }

    @Test
    void aJobThatEndsAtAnyStepLosesAndRepeatsNothing() throws Exception {
        Random random = new Random(7);
        SimulatedQuery.Step[] steps = SimulatedQuery.Step.values();
        int sent = 0;
        for (int life = 0; life < 30; life++) {
            try (SimulatedQuery query = open()) {
                client.publishNumbered("in", 1, sent + 1, sent + 20);
                sent += 20;
                SimulatedQuery.Step last = steps[life % steps.length];
                int batches = 1 + random.nextInt(2);
                for (int i = 0; i < batches; i++) {
                    query.run(SimulatedQuery.Step.COMMITTED);
                }
                query.run(last);
            }
        }
        try (SimulatedQuery query = open()) {
            runUntil(query, sent);
        }
        assertEquals(numbered(sent), client.distinct());
    }

    @ParameterizedTest
    @EnumSource(
            value = SimulatedQuery.Step.class,
            names = {"LOGGED", "WRITTEN", "PUBLISHED", "COMMITTED"})
    void atAStopTheLastBatchIsTakenIfItIsCommitted(SimulatedQuery.Step last) throws Exception {
        try (SimulatedQuery query = open()) {
            client.publishNumbered("in", 1, 1, 10);
            runUntil(query, 10);
            client.publishNumbered("in", 1, 11, 11);
            Wait.until("a batch", () -> query.run(last));
        }
        assertEquals(last == SimulatedQuery.Step.COMMITTED ? 11 : 10, readTaken());
    }

    /** Up to which number the reader has announced what it has taken. */
    private int readTaken() throws Exception {
        client.listen("speck/taken/speck-0-j-aaaa");
        Pattern taken = Pattern.compile("\"taken\":\\{\"p\":\\{\"1\":(\\d+)}");
        Wait.until("the numbers", () -> taken.matcher(client.last()).find(), client::last);
        Matcher numbers = taken.matcher(client.last());
        assertTrue(numbers.find());
        return Integer.parseInt(numbers.group(1));
    }

    @Test
    void whatIsInTheSpoolAloneIsNotTaken() throws Exception {
        try (SimulatedQuery query = open()) {
            client.publishNumbered("in", 1, 1, 10);
            runUntil(query, 10);
            client.publishNumbered("in", 1, 11, 11);
            Path spool = temp.resolve("query/sources/0/spool");
            long before = newestOf(spool);
            Wait.until(
                    "a segment",
                    () -> {
                        query.run(SimulatedQuery.Step.PLANNED);
                        return newestOf(spool) > before;
                    });
        }
        assertEquals(10, readTaken());
    }

    private static long newestOf(Path folder) throws Exception {
        try (var files = Files.list(folder)) {
            return files.mapToLong(file -> Long.parseLong(file.getFileName().toString()))
                    .max()
                    .orElse(0);
        }
    }

    @Test
    void whatABatchHasStoredIsWhatItPublishes() throws Exception {
        try (SimulatedQuery query = open()) {
            client.publishNumbered("in", 1, 1, 10);
            Wait.until("a batch", () -> query.run(SimulatedQuery.Step.PUBLISHED));
        }
        List<String> before = client.stamps();
        try (SimulatedQuery query = open()) {
            query.run(SimulatedQuery.Step.COMMITTED);
            client.publishNumbered("in", 1, 11, 11);
            runUntil(query, 11);
        }
        assertTrue(client.stamps().containsAll(before));
        assertEquals(numbered(11), client.distinct());
    }

    @ParameterizedTest
    @ValueSource(strings = {"exactly_once", "at_least_once"})
    void theSinkAloneSendsWhatAKilledBrokerHasForgotten(String delivery) throws Exception {
        client.close();
        broker.close();
        broker = Mosquitto.in(temp).autosaving(3600).start();
        client = new TestClient(broker).listen("out");
        Path folder = temp.resolve("ended");
        try (SimulatedQuery query =
                new SimulatedQuery(folder, new SimulatedQuery.Log(), contract(delivery))) {
            query.run(SimulatedQuery.Step.COMMITTED);
            client.publishNumbered("in", 1, 1, 10);
            runUntil(query, 10);
        }
        List<String> stamps = client.stamps();
        client.close();
        broker.kill();
        broker.start();
        client = new TestClient(broker).listen("out");
        OpenLinks.resend(folder.toString(), contract(delivery));
        Wait.until("all of it", () -> client.distinct().size() == 10, client::payloads);
        assertEquals(numbered(10), client.payloads());
        assertEquals(stamps, client.stamps());
        OpenLinks.resend(folder.toString(), contract(delivery));
        assertEquals(numbered(10), client.payloads(), "the broker says that it has it");
    }

    @ParameterizedTest
    @ValueSource(strings = {"exactly_once", "at_least_once"})
    void aBatchFailsWhoseSinkHasFailedWithAnError(String delivery) throws Exception {
        Map<String, String> contract = new HashMap<>(contract(delivery));
        contract.put("sink-broker", "broken://host");
        Path folder = temp.resolve("broken");
        SimulatedQuery.Log batches = new SimulatedQuery.Log();
        try (SimulatedQuery query = new SimulatedQuery(folder, batches, contract)) {
            client.publishNumbered("in", 1, 1, 1);
            Executable run =
                    () ->
                            Wait.until(
                                    "a batch", () -> query.run(SimulatedQuery.Step.COMMITTED));
            Exception failure =
                    assertTimeoutPreemptively(
                            Duration.ofSeconds(60),
                            () -> assertThrows(IllegalStateException.class, run));
            assertTrue(failure.getMessage().contains("trial/Writer"), failure.getMessage());
        }
    }

    @Test
    void aQueryThatHasWrittenNothingSendsNothingAgain() throws Exception {
        OpenLinks.resend(temp.resolve("none").toString(), contract("exactly_once"));
        assertEquals(List.of(), client.payloads());
    }

    @Test
    void aCheckpointElsewhereIsRefused() {
        assertThrows(
                IllegalArgumentException.class, () -> CheckpointFolder.parse("hdfs://host/folder"));
        assertThrows(IllegalArgumentException.class, () -> CheckpointFolder.parse(null));
        assertEquals(Path.of("/a b/c"), CheckpointFolder.parse("file:///a b/c"));
        assertEquals(Path.of("/a/c"), CheckpointFolder.parse("/a/b/../c"));
    }

    @Test
    void oldFilesAreDeleted() throws Exception {
        try (SimulatedQuery query = open()) {
            for (int batch = 1; batch <= 8; batch++) {
                client.publishNumbered("in", 1, batch, batch);
                runUntil(query, batch);
            }
        }
        for (String name : List.of("sources/0/spool", "out")) {
            try (var files = Files.list(temp.resolve("query").resolve(name))) {
                assertTrue(files.count() <= 4, name);
            }
        }
    }
}
