package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.util.List;
import java.util.Set;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A chain of two jobs whose broker between them is killed after it has acknowledged, and before it
 * has written anything down.
 */
class BrokerKillTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String NEXT = "speck-0a1b2c3d-next-89abcdef";

    private static final String LATE = "speck-0a1b2c3d-late-89abcdef";

    private Mosquitto middle;
    private TestJob next;

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    /** The second job's session is on disk, and all that comes after will not be. */
    @BeforeEach
    void openMiddle() throws Exception {
        middle = Mosquitto.in(folder).autosaving(1800).start();
        reserve(middle, NEXT, "mid");
        middle.stop();
        middle.start();
    }

    @AfterEach
    void closeMiddle() throws Exception {
        if (next != null) {
            next.cancel();
        }
        job.cancel();
        middle.close();
    }

    private void startFirst(String delivery, String resendWindow) throws Exception {
        first(delivery).with("resend-window", resendWindow).start();
        Wait.until("the reader is there", () -> publishAndSee("hello"));
    }

    private TestJob first(String delivery) {
        job = new TestJob(broker, "in", middle, "mid").with("sink-readers", "some");
        return job.with("delivery", delivery).keeping(folder);
    }

    private void startNext(String delivery) throws Exception {
        next = new TestJob(middle, "mid", broker, "out").with("client-id", NEXT);
        next.with("job-name", "next").with("delivery", delivery).start();
    }

    /** Lets an observer see the records, so that they are acknowledged, and kills the broker. */
    private void killWhenItHas(int count) throws Exception {
        try (TestClient observer = new TestClient(middle).listen("mid")) {
            client.publishNumbered("in", 1, 1, count);
            Wait.until(
                    "the broker in the middle has all",
                    () -> observer.payloads().containsAll(records(1, count)),
                    observer::payloads);
            awaitAcknowledged();
            middle.kill();
        }
        middle.start();
    }

    @ParameterizedTest
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatTheBrokerForgotIsSentAgain(String delivery) throws Exception {
        startFirst(delivery, "15s");
        killWhenItHas(200);
        Wait.until("they are sent again", () -> counter("recordsResent") >= 200);
        awaitAcknowledged();
        middle.kill(); // what was sent again is kept again
        middle.start();
        Wait.until("they are sent once more", () -> counter("recordsResent") >= 400);
        startNext(delivery);
        awaitRecords(200);
        client.publishNumbered("in", 1, 201, 210);
        awaitRecords(210);
        List<String> distinct = out.distinct();
        distinct.removeIf(text -> text.equals("hello"));
        assertEquals(records(1, 210), distinct);
    }

    /** Another reader of the link has lost its session, and with it what this broker has. */
    @ParameterizedTest
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatAReaderAsksForIsSentAgain(String delivery) throws Exception {
        startFirst(delivery, "15s");
        try (TestClient observer = new TestClient(middle).listen("mid")) {
            client.publishNumbered("in", 1, 1, 200);
            Wait.until("all is there", () -> observer.payloads().containsAll(records(1, 200)));
            awaitAcknowledged();
            observer.publish("speck/readers/mid", "again", null).join();
            Wait.until(
                    "all is there twice",
                    () -> count(observer, "r1") == 2 && count(observer, "r200") == 2);
            client.publishNumbered("in", 1, 201, 210);
            Wait.until("it goes on", () -> count(observer, "r210") == 1);
            assertEquals(1, count(observer, "r201"));
        }
    }

    /** Its session is reserved before it starts: if it is not there, a kill has taken it away. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void aReaderThatFindsNoSessionAtItsFirstStartIsSentWhatItMissed(String delivery)
            throws Exception {
        startFirst(delivery, "15s");
        try (TestClient observer = new TestClient(middle).listen("mid")) {
            client.publishNumbered("in", 1, 1, 200);
            Wait.until("all is there", () -> observer.payloads().containsAll(records(1, 200)));
            awaitAcknowledged();
            startNext(delivery);
            awaitRecords(200);
        }
    }

    /** The other reader has its session on disk, and the acknowledgements speak of it alone. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void nothingIsSentToABrokerThatHasLostOneOfTwoSessions(String delivery) throws Exception {
        startFirst(delivery, "15s");
        reserve(middle, LATE, "mid");
        killWhenItHas(200);
        client.publishNumbered("in", 1, 201, 210);
        awaitHeld();
        reserve(middle, LATE, "mid");
        TestClient late = new TestClient(middle, LATE);
        TestClient saved = new TestClient(middle, NEXT);
        for (TestClient reader : List.of(late, saved)) {
            Wait.until("all is there", () -> reader.payloads().contains("r210"), reader::payloads);
            List<String> distinct = reader.distinct();
            distinct.removeIf(text -> text.equals("hello"));
            assertEquals(records(1, 210), distinct);
            reader.close();
        }
    }

    /** As after a release of which the sink heard nothing. */
    @Test
    @Tag("long")
    void aSessionThatIsMissedForNothingIsNotWaitedFor() throws Exception {
        startFirst("at_least_once", "15s");
        reserve(middle, LATE, "mid");
        killWhenItHas(200);
        awaitHeld();
        client.publishNumbered("in", 1, 201, 210);
        try (TestClient control = new TestClient(middle)) {
            control.publish("speck/readers/mid", "complete", null).join();
        }
        startNext("at_least_once");
        awaitRecords(210);
    }

    @Test
    @Tag("long")
    void aReaderThatComesBackMakesItsSessionAgain() throws Exception {
        startFirst("at_least_once", "15s");
        reserve(middle, LATE, "mid");
        next = new TestJob(middle, "mid", broker, "out").with("client-id", LATE);
        next.with("job-name", "next").with("delivery", "at_least_once").start();
        killWhenItHas(200);
        client.publishNumbered("in", 1, 201, 210);
        awaitRecords(210);
        try (TestClient heard = new TestClient(middle).listen("speck/sessions/#")) {
            heard.await(2);
            assertEquals(
                    Set.of("speck/sessions/mid/" + LATE, "speck/sessions/mid/" + NEXT),
                    heard.lastByTopic().keySet());
        }
    }

    /** A reader's session is missing, and the sink says how much it holds. */
    private void awaitHeld() throws Exception {
        try (TestClient observer = new TestClient(middle).listen("speck/sent/#")) {
            Wait.until(
                    "the sink holds what it has",
                    () ->
                            observer.lastByTopic().values().stream()
                                    .anyMatch(sent -> !sent.contains("\"unread\":0,")),
                    observer::payloads);
        }
    }

    private static long count(TestClient observer, String payload) {
        return observer.payloads().stream().filter(payload::equals).count();
    }

    /**
     * As when a site loses its power: what is in memory is gone on both sides.
     *
     * @param observer at the broker in the middle, and closed then
     * @return another one, who sees what comes from then on
     */
    private TestClient killWithTheJob(TestClient observer, String delivery) throws Exception {
        Wait.until(
                "the broker in the middle has all",
                () -> observer.payloads().containsAll(records(1, 200)),
                observer::payloads);
        awaitAcknowledged();
        middle.kill();
        observer.close();
        job.cancel();
        String checkpoint = job.newestCheckpoint(folder);
        middle.start();
        TestClient another = new TestClient(middle).listen("mid");
        first(delivery).from(checkpoint).start();
        return another;
    }

    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatTheBrokerForgotIsSentAgainByAJobThatFellWithIt(String delivery) throws Exception {
        startFirst(delivery, "15s");
        TestClient observer = new TestClient(middle).listen("mid");
        client.publishNumbered("in", 1, 1, 200);
        observer = killWithTheJob(observer, delivery);
        observer = killWithTheJob(observer, delivery); // what came from the state is in it
        observer.close();
        startNext(delivery);
        awaitRecords(200);
        client.publishNumbered("in", 1, 201, 210);
        awaitRecords(210);
        List<String> distinct = out.distinct();
        distinct.removeIf(text -> text.equals("hello"));
        assertEquals(records(1, 210), distinct);
    }

    /** It has left its link for good, so nobody else sends this again. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatTheBrokerForgotOfAStoppedJobIsSentAgainFromItsSavepoint(String delivery)
            throws Exception {
        startFirst(delivery, "15s");
        client.publishNumbered("in", 1, 1, 200);
        awaitAcknowledged();
        String savepoint = job.stop(folder.toUri().toString());
        middle.kill();
        middle.start();
        job.resend(savepoint);
        middle.kill(); // as good as before: the savepoint is still there
        middle.start();
        job.resend(savepoint);
        startNext(delivery);
        awaitRecords(200);
        assertEquals(records(1, 200), recordsOut());
    }

    /** Its broker's word is enough here, too. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatTheBrokerHasOfAStoppedJobIsNotSentAgain(String delivery) throws Exception {
        startFirst(delivery, "15s");
        client.publishNumbered("in", 1, 1, 200);
        awaitAcknowledged();
        String savepoint = job.stop(folder.toUri().toString());
        try (TestClient observer = new TestClient(middle).listen("mid")) {
            job.resend(savepoint);
            observer.publish("mid", "last", null).join();
            Wait.until("all has come", () -> observer.payloads().contains("last"));
            assertEquals(List.of("last"), observer.payloads());
        }
    }

    /** Shows that the test above tests something. */
    @Test
    @Tag("long")
    void withoutTheWindowInTheStateItIsLost() throws Exception {
        first("at_least_once").with("resend-state-bytes", "0").start();
        Wait.until("the reader is there", () -> publishAndSee("hello"));
        TestClient observer = new TestClient(middle).listen("mid");
        client.publishNumbered("in", 1, 1, 200);
        killWithTheJob(observer, "at_least_once").close();
        startNext("at_least_once");
        client.publishNumbered("in", 1, 201, 201);
        awaitRecords(1);
        assertEquals(List.of("r201"), recordsOut());
    }

    /** Its broker's word is enough. */
    @ParameterizedTest
    @Tag("long")
    @ValueSource(strings = {"at_least_once", "exactly_once"})
    void whatTheBrokerHasIsNotSentAgain(String delivery) throws Exception {
        startFirst(delivery, "15s");
        startNext(delivery);
        client.publishNumbered("in", 1, 1, 200);
        awaitRecords(200);
        awaitAcknowledged();
        middle.stop(); // it writes everything down
        middle.start();
        client.publishNumbered("in", 1, 201, 210);
        awaitRecords(210);
        assertEquals(0, counter("recordsResent"));
        awaitAcknowledged();
        job.cancel();
        String checkpoint = job.newestCheckpoint(folder);
        first(delivery).from(checkpoint).start();
        client.publishNumbered("in", 1, 211, 220);
        awaitRecords(220);
        assertEquals(0, counter("recordsResent"));
        assertEquals(records(1, 220), recordsOut());
    }

    /** Shows that the tests above test something. */
    @Test
    @Tag("long")
    void withoutAWindowItIsLost() throws Exception {
        startFirst("at_least_once", "0s");
        killWhenItHas(200);
        startNext("at_least_once");
        client.publishNumbered("in", 1, 201, 201);
        awaitRecords(1);
        assertEquals(List.of("r201"), recordsOut());
    }
}
