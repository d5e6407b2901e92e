package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Jobs that are stopped and started again: without a failure nobody sees a stamp twice. */
class SentOnceTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String MOVED = "speck-0a1b2c3d-test-01234567";
    private static final Pattern NUMBER = Pattern.compile("\"number\":(\\d+)");

    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    @BeforeEach
    void forget() {
        SEEN.clear();
    }

    private static byte[] noted(byte[] payload) {
        SEEN.add(new String(payload, StandardCharsets.UTF_8));
        return payload;
    }

    private TestJob job(String delivery, String batch, String from, Mosquitto to, String topic) {
        job = new TestJob(broker, from, to, topic).mapping(SentOnceTest::noted).withoutCheckpoints();
        return job.with("delivery", delivery).with("batch-records", batch);
    }

    /** What is fed is not published before the stop under exactly_once: no checkpoint covers it. */
    private String feedAndStop(String to, int from, int last) throws Exception {
        client.publishNumbered(to, 1, from, last);
        Wait.until("all are taken", () -> SEEN.containsAll(records(from, last)), () -> SEEN);
        return job.stop(folder.toUri().toString());
    }

    private static void await(TestClient at, int count) throws Exception {
        Wait.until(
                count + " records came",
                () -> new HashSet<>(at.payloads()).containsAll(records(1, count)),
                at::payloads);
    }

    private static void assertNoneTwice(TestClient at, int count) {
        assertEquals(records(1, count), at.payloads());
        assertEquals(count, new HashSet<>(at.stamps()).size());
    }

    @ParameterizedTest
    @CsvSource({"exactly_once, 20, moved-in, out", "at_least_once, 1, in, moved-out"})
    void aStopAndAStartPublishNothingAgain(
            String delivery, String batch, String source, String sink) throws Exception {
        stopAndStart(delivery, batch, source, sink);
    }

    @ParameterizedTest
    @Tag("long")
    @CsvSource({
        "at_least_once, 1, in, out",
        "exactly_once, 1, in, out",
        "exactly_once, 20, in, out",
        "at_least_once, 1, moved-in, out",
        "exactly_once, 1, moved-in, out",
        "exactly_once, 1, in, moved-out",
        "exactly_once, 20, in, moved-out",
    })
    void aStopAndAStartPublishNothingAgainInOtherModes(
            String delivery, String batch, String source, String sink) throws Exception {
        stopAndStart(delivery, batch, source, sink);
    }

    private void stopAndStart(String delivery, String batch, String source, String sink)
            throws Exception {
        TestClient all = new TestClient(broker).listen("out").listen("moved-out");
        TestClient books = new TestClient(broker).listen("speck/sent/#");
        startAndSubscribe(job(delivery, batch, "in", broker, "out"));
        String savepoint = feedAndStop("in", 1, 50);
        for (int done = 50; done < 150; done += 50) { // the second time its links stay
            job(delivery, batch, source, broker, sink).from(savepoint);
            if (!source.equals("in")) {
                job.with("client-id", MOVED);
            }
            startAndSubscribe(job);
            savepoint = feedAndStop(source, done + 1, done + 50);
        }
        await(all, 150);
        assertNoneTwice(all, 150);
        assertEquals(rising(books), numbersSaid(books), "what is said to be there stays there");
        all.close();
        books.close();
    }

    private static List<Long> rising(TestClient books) {
        List<Long> numbers = new ArrayList<>(numbersSaid(books));
        numbers.sort(null);
        return numbers;
    }

    /** Numbers of exactly_once go on over all links; each epoch of the other mode begins anew. */
    private static List<Long> numbersSaid(TestClient books) {
        List<Long> numbers = new ArrayList<>();
        String epoch = "";
        for (String text : books.payloads()) {
            String of = text.replaceFirst(".*\"epoch\":", "").replaceFirst(",.*", "");
            if (!of.equals(epoch)) {
                epoch = of;
                numbers.clear();
            }
            Matcher number = NUMBER.matcher(text);
            number.find();
            numbers.add(Long.parseLong(number.group(1)));
        }
        return numbers;
    }

    @Test
    @Tag("long")
    void whatWasNotSentAgainIsCounted() throws Exception {
        startAndSubscribe(job("exactly_once", "20", "in", broker, "out"));
        String savepoint = feedAndStop("in", 1, 50);
        startAndSubscribe(job("exactly_once", "20", "in", broker, "out").from(savepoint));
        Wait.until("all are counted", () -> counter("recordsConfirmed") == 50);
        assertEquals(0, counter("recordsResent"));
    }

    /** The same client id may have been used on another topic of the broker. */
    @Test
    @Tag("long")
    void whatIsSaidOfAnotherTopicIsNotHeard() throws Exception {
        startAndSubscribe(job("exactly_once", "1", "in", broker, "out"));
        String savepoint = feedAndStop("in", 1, 50);
        await(out, 50);
        String sent = "speck/sent/" + TestJob.CLIENT_ID + "-out";
        TestClient books = new TestClient(broker).listen(sent);
        books.await(1);
        client.retain(sent, books.last().replace("\"topic\":\"out\"", "\"topic\":\"other\""));
        startAndSubscribe(job("exactly_once", "1", "in", broker, "out").from(savepoint));
        Wait.until("all are sent again", () -> out.payloads().size() == 100, out::payloads);
        assertEquals(0, counter("recordsConfirmed"));
        books.close();
    }

    /** A broker that is killed forgets what it had said, too. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatWasConfirmedIsSentAgainToABrokerThatForgetsIt(String delivery) throws Exception {
        try (Mosquitto there = Mosquitto.in(folder).autosaving(1800).start()) {
            TestClient thereOut = new TestClient(there).listen("out");
            startAndSubscribe(job(delivery, "1", "in", there, "out"));
            String savepoint = feedAndStop("in", 1, 50);
            await(thereOut, 50);
            startAndSubscribe(job(delivery, "1", "in", there, "out").from(savepoint));
            assertNoneTwice(thereOut, 50);
            there.kill();
            there.start();
            // a reader without a session might subscribe after they have come
            Wait.until("all are sent again", () -> counter("recordsResent") == 50);
            job.cancel();
            thereOut.close();
        }
    }
}
