package io.speck.link.testing;

import io.speck.link.metrics.CountedMetrics;
import io.speck.link.protocol.Batching;
import io.speck.link.sink.BlockingLoop;
import io.speck.link.sink.Committable;
import io.speck.link.sink.CommittablePublisher;
import io.speck.link.sink.LinkChooser;
import io.speck.link.sink.LinkWriter;
import io.speck.link.sink.LinkWriters;
import io.speck.link.sink.SinkSettings;
import io.speck.link.sink.SinkState;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** The writing end of a link in a test's own thread: an engine of the least kind. */
public final class TestWriter implements AutoCloseable {
    public static final String CLIENT_ID = "speck-0a1b2c3d-writer-";
    private static final int MAX_RECORD_BYTES = 500_000;

    /** What a checkpoint holds. */
    public record Checkpoint(List<SinkState> states, List<Committable> committables) {
        /** Of a writer that begins. */
        public static final Checkpoint NONE = new Checkpoint(List.of(), List.of());
    }

    public final CountedMetrics metrics = new CountedMetrics();
    private final CountedMetrics committing = new CountedMetrics();
    private final LinkWriter writer;
    private final CommittablePublisher publisher;

    /** Goes on from a checkpoint, whose committables it publishes first. */
    public TestWriter(TestBroker broker, String topic, Delivery delivery, Checkpoint from)
            throws InterruptedException {
        this(broker, List.of(topic), delivery, from);
    }

    /** The same for a port of several links, to which records go in turn. */
    public TestWriter(TestBroker broker, List<String> topics, Delivery delivery, Checkpoint from)
            throws InterruptedException {
        List<LinkConfig> port =
                topics.stream().map(topic -> link(broker, topic, delivery)).toList();
        SinkSettings settings =
                new SinkSettings(
                        true,
                        MAX_RECORD_BYTES,
                        Duration.ofSeconds(15),
                        0,
                        SinkSettings.RESEND_STATE_BYTES,
                        Batching.OFF);
        String key = topics + "/" + System.identityHashCode(this);
        publisher = new CommittablePublisher(port, settings, key, false, committing);
        publisher.commit(from.committables());
        writer =
                new LinkWriters(port, 1, settings, key)
                        .open(LinkChooser.inTurn(), from.states(), new BlockingLoop(), metrics);
    }

    private static LinkConfig link(TestBroker broker, String topic, Delivery delivery) {
        return new LinkConfig(
                Transports.parse(broker.address()), topic, CLIENT_ID + topic, delivery, 200);
    }

    public TestWriter write(List<String> records) throws Exception {
        for (String record : records) {
            writer.write(record.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        }
        return this;
    }

    /** Begins a checkpoint. */
    public Checkpoint checkpoint() throws Exception {
        writer.flush();
        List<Committable> committables = new ArrayList<>(writer.prepareCommit());
        return new Checkpoint(writer.snapshot(), committables);
    }

    /** The checkpoint is complete. */
    public void complete(Checkpoint checkpoint) throws InterruptedException {
        publisher.commit(checkpoint.committables());
    }

    @Override
    public void close() {
        writer.close();
        publisher.close();
    }
}
