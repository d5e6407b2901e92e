package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.ReportedMetrics;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestJob;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A job whose sink writes to two links, in turn. */
class PortTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    private static final String FIRST = TestJob.CLIENT_ID + "-out";
    private static final String SECOND = "speck-0a1b2c3d-test-fedcba98-out";

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    private TestJob portJob() {
        return job().with("delivery", "exactly_once")
                .with("port", "out/" + FIRST + ";other/" + SECOND);
    }

    @Test
    void eachLinkHasItsNumbersWhichGoOnInTheState() throws Exception {
        try (TestClient other = new TestClient(broker).listen("other")) {
            startAndSubscribe(portJob());
            client.publishNumbered("in", 7, 1, 100);
            Wait.until("the first came", () -> other.payloads().size() >= 50, other::payloads);
            String state = job.stop(folder.toUri().toString());
            client.publishNumbered("in", 7, 101, 200);
            portJob().from(state).start();
            Wait.until("all came", () -> other.payloads().size() >= 100, other::payloads);
            awaitRecords(100);
            List<String> all = new ArrayList<>(recordsOut());
            all.addAll(other.payloads());
            assertEquals(Set.copyOf(records(1, 200)), Set.copyOf(all));
            assertEquals(200, all.size());
            assertNumbered(out.stamps(), "0a1b2c3d-test-89abcdef");
            assertNumbered(other.stamps(), "0a1b2c3d-test-fedcba98");
        }
    }

    /** From 1 to 100 in one epoch of a producer. */
    private static void assertNumbered(List<String> stamps, String producer) {
        String first = stamps.get(0);
        String prefix = first.substring(0, first.lastIndexOf('/') + 1);
        assertEquals(producer, prefix.split("/")[0]);
        List<String> expected = new ArrayList<>();
        for (int number = 1; number <= 100; number++) {
            expected.add(prefix + number);
        }
        assertEquals(
                String.join(" ", expected), stamps.stream().collect(Collectors.joining(" ")));
    }
}
