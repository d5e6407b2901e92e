package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestJob;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * A chain of two jobs in steady flow, whose broker between them, which saves every five seconds, is
 * killed again and again: with the reader there, with a backlog while it is away, and together with
 * the job that feeds it.
 */
@Tag("long")
class BrokerKillSoakTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String NEXT = "speck-0a1b2c3d-next-89abcdef";
    private static final int ROUNDS = Integer.getInteger("speck.rounds", 20);
    private static final int A_ROUND = 600; // records

    private Mosquitto middle;
    private TestJob next;
    private volatile boolean feeding = true;
    private volatile int fed;

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    @BeforeEach
    void openMiddle() throws Exception {
        middle = Mosquitto.in(folder).autosaving(5).start();
        reserve(middle, NEXT, "mid");
        middle.stop(); // the sessions are on disk; what comes from here on may not be
        middle.start();
        reserve(broker, TestJob.CLIENT_ID, "in");
    }

    @AfterEach
    void closeMiddle() throws Exception {
        feeding = false;
        next.cancel();
        job.cancel();
        middle.close();
    }

    private TestJob first(String delivery) {
        job = new TestJob(broker, "in", middle, "mid").with("sink-readers", "some");
        return job.with("delivery", delivery).keeping(folder);
    }

    private TestJob second(String delivery) {
        next = new TestJob(middle, "mid", broker, "out").with("client-id", NEXT);
        return next.with("job-name", "next").with("delivery", delivery).keeping(folder);
    }

    /** Some hundreds a second. */
    private CompletableFuture<Void> feed() {
        return CompletableFuture.runAsync(
                () -> {
                    while (feeding) {
                        client.publishNumbered("in", 1, fed + 1, fed + 10);
                        fed += 10;
                        LockSupport.parkNanos(20_000_000);
                    }
                });
    }

    private void awaitFed(int more) throws Exception {
        int mark = fed + more;
        Wait.until("the feed goes on", () -> fed >= mark);
    }

    private void awaitOut(int number) throws Exception {
        Wait.until(
                "r" + number + " is out",
                () -> !out.last().isEmpty() && Integer.parseInt(out.last().substring(1)) >= number,
                () -> "fed " + fed + ", out " + out.last());
    }

    private void kill(String with, String delivery) throws Exception {
        switch (with) {
            case "reader" -> {
                awaitFed(A_ROUND);
                middle.kill();
                middle.start();
            }
            case "backlog" -> {
                next.awaitCheckpoint(folder);
                next.cancel();
                String checkpoint = next.newestCheckpoint(folder);
                awaitFed(A_ROUND);
                middle.kill();
                middle.start();
                second(delivery).from(checkpoint).start();
            }
            default -> {
                awaitFed(A_ROUND);
                job.awaitCheckpoint(folder);
                middle.kill();
                job.cancel();
                String checkpoint = job.newestCheckpoint(folder);
                middle.start();
                first(delivery).from(checkpoint).start();
            }
        }
        awaitOut(fed);
    }

    @ParameterizedTest
    @CsvSource({
        "at_least_once,reader",
        "exactly_once,reader",
        "at_least_once,backlog",
        "exactly_once,backlog",
        "at_least_once,job",
        "exactly_once,job"
    })
    void nothingIsLost(String delivery, String with) throws Exception {
        first(delivery).start();
        second(delivery).start();
        CompletableFuture<Void> feed = feed();
        awaitOut(1);
        for (int round = 0; round < ROUNDS; round++) {
            kill(with, delivery);
        }
        feeding = false;
        feed.join();
        Wait.until(
                "all is out",
                () -> out.payloads().contains("r" + fed),
                () -> "fed " + fed + ", out " + out.last());
        List<String> distinct = new ArrayList<>(out.distinct());
        if (delivery.equals("exactly_once")) {
            assertEquals(records(1, fed), distinct);
        } else { // what a restart takes again is published again, as new
            assertEquals(records(1, fed), distinct.stream().distinct().toList());
        }
    }
}
