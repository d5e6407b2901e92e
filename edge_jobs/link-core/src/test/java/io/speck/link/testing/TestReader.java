package io.speck.link.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.speck.link.metrics.CountedMetrics;
import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.ReaderState;
import io.speck.link.protocol.Until;
import io.speck.link.source.LinkReader;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import java.util.ArrayList;
import java.util.List;

/** The reading end of a link in a test's own thread. */
public final class TestReader implements AutoCloseable {
    public static final String CLIENT_ID = "speck-0a1b2c3d-reader-89abcdef";

    public final CountedMetrics metrics = new CountedMetrics();
    public final List<String> records = new ArrayList<>();
    private final LinkReader reader;
    private long checkpoints;

    public TestReader(TestBroker broker, String topic, ReaderState from) {
        this(broker, topic, CLIENT_ID, from);
    }

    public TestReader(TestBroker broker, String topic, String clientId, ReaderState from) {
        LinkConfig link =
                new LinkConfig(
                        Transports.parse(broker.address()),
                        topic,
                        clientId,
                        Delivery.EXACTLY_ONCE,
                        10_000);
        reader = new LinkReader(link, HandOver.NONE, Until.EVER, metrics);
        reader.restore(from);
        reader.start();
    }

    /** Polls until it has that many records. */
    public TestReader pollUntil(int count) throws Exception {
        Wait.until(
                count + " records came",
                () -> {
                    poll();
                    return records.size() >= count;
                },
                () -> records.size() + " records: " + tail());
        return this;
    }

    /** Takes what is there. */
    public void poll() {
        boolean more = true;
        while (more) {
            more = reader.poll(record -> records.add(new String(record, UTF_8)));
        }
    }

    /** Makes a checkpoint that is not complete yet. */
    public ReaderState checkpoint() {
        return reader.snapshot(++checkpoints);
    }

    /** The last checkpoint is complete. */
    public void complete() {
        reader.complete(checkpoints);
    }

    private String tail() {
        return records.subList(Math.max(0, records.size() - 3), records.size()).toString();
    }

    @Override
    public void close() {
        reader.close();
    }
}
