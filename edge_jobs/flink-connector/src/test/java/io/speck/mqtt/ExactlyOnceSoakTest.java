package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestJob;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * A chain of two exactly-once jobs in steady flow; one fault after another. Between two faults the
 * resend window fills anew: it is not part of the state, see edge_jobs/README.md.
 */
@Tag("long")
class ExactlyOnceSoakTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String NEXT = "speck-0a1b2c3d-next-89abcdef";
    private static final int ROUNDS = 5;
    private static final int MOST_AHEAD = 2000;
    private static final AtomicBoolean FAIL = new AtomicBoolean();

    private List<String> sending; // how many records a message, and how compressed
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
        middle = Mosquitto.started(folder); // it saves every second
        reserve(middle, NEXT, "mid");
        reserve(broker, TestJob.CLIENT_ID, "in");
    }

    @AfterEach
    void closeMiddle() throws Exception {
        next.cancel();
        job.cancel();
        middle.close();
    }

    private static byte[] failing(byte[] payload) {
        if (FAIL.compareAndSet(true, false)) {
            throw new IllegalStateException("on purpose");
        }
        return payload;
    }

    private TestJob first() {
        job = new TestJob(broker, "in", middle, "mid").with("sink-readers", "some");
        return exactly(job);
    }

    private TestJob second() {
        next = new TestJob(middle, "mid", broker, "out").with("client-id", NEXT);
        return exactly(next.with("job-name", "next"));
    }

    private TestJob exactly(TestJob any) {
        return any.with("delivery", "exactly_once")
                .with("resend-window", "4s")
                .with("batch-records", sending.get(0))
                .with("compression", sending.get(1))
                .keeping(folder)
                .mapping(ExactlyOnceSoakTest::failing);
    }

    /** Never far ahead of the end of the chain, so that a stall is not taken for a queue. */
    private CompletableFuture<Void> feed() {
        return CompletableFuture.runAsync(
                () -> {
                    while (feeding) {
                        if (fed - lastOut() < MOST_AHEAD) {
                            client.publishNumbered("in", 1, fed + 1, fed + 50);
                            fed += 50;
                        }
                        LockSupport.parkNanos(20_000_000);
                    }
                });
    }

    /** Lets the flow go on for more than an autosave interval. */
    private void settle(String after) throws Exception {
        for (int i = 0; i < 3; i++) {
            int mark = lastOut() + 100;
            Wait.until(
                    "the flow goes on after " + after,
                    () -> lastOut() >= mark,
                    () -> "fed " + fed + ", out " + out.last());
            Thread.sleep(800); // the broker's clock, not a condition
        }
    }

    private int lastOut() {
        return out.last().isEmpty() ? 0 : Integer.parseInt(out.last().substring(1));
    }

    @ParameterizedTest
    @CsvSource({"1, none", "100, zstd"})
    void oneFaultAfterAnotherLosesAndRepeatsNothing(String batch, String compression)
            throws Exception {
        sending = List.of(batch, compression);
        first().start();
        second().start();
        CompletableFuture<Void> feed = feed();
        for (int round = 0; round < ROUNDS; round++) {
            settle("the start");
            middle.kill();
            middle.start();
            settle("a kill of the broker");
            FAIL.set(true);
            settle("a failure");
            String savepoint = job.stop(folder.toUri().toString());
            first().from(savepoint).start();
            settle("a stop with savepoint");
            next.cancel();
            String checkpoint = next.newestCheckpoint(folder);
            second().from(checkpoint).start();
        }
        settle("a cancellation");
        feeding = false;
        feed.join();
        Wait.until("the end is there", () -> out.payloads().contains("r" + fed));
        assertEquals(records(1, fed), out.distinct());
    }
}
