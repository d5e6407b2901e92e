package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.CountingProxy;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.ReportedMetrics;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What sources and sinks count as bytes is what goes over the wire. */
@Tag("long")
class BytesTest extends JobTest {
    private static final ReportedMetrics METRICS = new ReportedMetrics();

    @RegisterExtension static final MiniClusterExtension CLUSTER = METRICS.cluster();

    @Override
    public ReportedMetrics metrics() {
        return METRICS;
    }

    @ParameterizedTest
    @CsvSource({
        "at_most_once, 1, none",
        "at_least_once, 1, none",
        "exactly_once, 1, none",
        "at_least_once, 100, none",
        "at_least_once, 100, zstd",
        "exactly_once, 10000, zstd"
    })
    void areThoseOfThePackets(String delivery, String together, String compression) throws Exception {
        try (CountingProxy in = new CountingProxy(broker);
                CountingProxy sent = new CountingProxy(broker)) {
            startAndSubscribe(
                    job()
                            .with("delivery", delivery)
                            .with("batch-records", together)
                            .with("linger-ms", "50")
                            .with("compression", compression)
                            .with("source-broker", in.address())
                            .with("sink-broker", sent.address()));
            client.publishNumbered("in", 7, 1, 1200); // numbers of one to four digits
            client.publish("in", "r" + "x".repeat(20_000), null).join();
            awaitRecords(1201);
            Wait.until(
                    "all bytes of the sink are counted",
                    () -> bytesSent() == sent.toBroker(),
                    () -> bytesSent() + " of " + sent.toBroker());
            assertEquals(in.fromBroker(), counter("Source: mqtt-source.*numBytesIn$"));
            assertEquals(1201, counter("Source: mqtt-source.*numRecordsIn$"));
            assertEquals(1201, counter("mqtt-sink: Writer.*numRecordsSend$"));
            // how well records compress depends on how many checkpoints cut the batch
            int least = compression.equals("zstd") ? 100 : 1201;
            assertTrue(sent.toBroker() > (together.equals("1") ? 1201 * 20 : least));
        }
    }

    private long bytesSent() {
        return counter("mqtt-sink: Writer.*numBytesSend$")
                + counter("mqtt-sink: Committer.*numBytesSend$");
    }
}
