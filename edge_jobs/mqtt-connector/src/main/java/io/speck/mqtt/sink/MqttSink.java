package io.speck.mqtt.sink;

import io.speck.mqtt.connection.Delivery;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.protocol.ProducerEpoch;
import io.speck.mqtt.protocol.Stamp;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.Collection;
import java.util.List;
import java.util.random.RandomGenerator;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Publishes records as messages of one topic. Runs at parallelism 1.
 *
 * <p>Under exactly_once {@link ExactlyOnceWriter} puts messages into checkpoints, and {@link
 * MqttCommitter} publishes them. In the other delivery modes {@link PublishingWriter} publishes at
 * once, and the committer only what a checkpoint of an exactly-once run has left.
 */
public final class MqttSink
        implements Sink<byte[]>,
                SupportsWriterState<byte[], MqttSink.State>,
                SupportsCommitter<Committable> {
    private static final long serialVersionUID = 1L;
    private static final int SPREAD_BITS = 22; // attempts of a restored store have 38 bits
    private static final long FIRST_SPREAD = 1L << (SPREAD_BITS - 1);
    private static final long NEXT_SPREAD = 1L << 14; // small: an attempt has room for many

    private final LinkConfig link;
    private final long attempt;
    private final SinkSettings settings;
    private final boolean resendsOnly;

    /** @param attempt of the incarnation; newer ones have higher numbers */
    public MqttSink(LinkConfig link, long attempt, SinkSettings settings) {
        this(link, attempt, settings, false);
    }

    private MqttSink(LinkConfig link, long attempt, SinkSettings settings, boolean resendsOnly) {
        this.link = link;
        this.attempt = attempt;
        this.settings = settings;
        this.resendsOnly = resendsOnly;
    }

    /**
     * Returns a sink that gets no records: it sends what a restored state holds and the broker does
     * not have, and its input's end waits until the broker has taken all of it.
     */
    public static MqttSink resending(LinkConfig link, long attempt, SinkSettings settings) {
        return new MqttSink(link, attempt, settings, true);
    }

    /**
     * The state of a writer: its epoch, and its last number in it.
     *
     * @param exact whether no record that was published has a number after this one
     * @param recent what was published not long ago, and where, as a committable without messages
     *     of its own; null under exactly_once, where the committables have it
     */
    record State(long epoch, long number, boolean exact, Committable recent) {
        /** Returns what was published not long ago over the link. */
        List<NumberedMessages> recentOver(LinkConfig link) {
            return recent != null && recent.isFor(link) ? recent.recent() : List.of();
        }
    }

    @Override
    public SinkWriter<byte[]> createWriter(WriterInitContext context) {
        return restoreWriter(context, List.of());
    }

    @Override
    public MqttWriter restoreWriter(WriterInitContext context, Collection<State> restored) {
        boolean exact = link.delivery() == Delivery.EXACTLY_ONCE;
        State continued =
                exact ? restored.stream().filter(State::exact).findFirst().orElse(null) : null;
        String producer = Stamp.producerOf(link.clientId().replaceFirst("-out$", ""));
        if (continued != null) {
            return new ExactlyOnceWriter(
                            link,
                            ProducerEpoch.of(producer, continued.epoch),
                            continued.number,
                            settings,
                            ResendWindows.keyOf(context, link),
                            context.metricGroup())
                    .start();
        }
        List<NumberedMessages> recent =
                restored.stream().flatMap(state -> state.recentOver(link).stream()).toList();
        ProducerEpoch epoch = ProducerEpoch.of(producer, chooseEpoch(new SecureRandom(), restored));
        return exact
                ? new ExactlyOnceWriter(
                                link,
                                epoch,
                                0,
                                settings,
                                ResendWindows.keyOf(context, link),
                                context.metricGroup())
                        .start()
                : new PublishingWriter(
                                link,
                                epoch,
                                settings,
                                context.getMailboxExecutor(),
                                context.getProcessingTimeService(),
                                context.metricGroup())
                        .start(recent)
                        .awaitReady();
    }

    /**
     * Chooses the epoch of a new writer. Unless they wait for a checkpoint, numbers given after the
     * last one may go to other records after a restore, so each start of a writer begins a new
     * epoch: above the restored one, and unlike those of starts whose state was never saved. The
     * latter is left to chance: clocks step back, and a count of the starts would be lost with the
     * engine.
     */
    long chooseEpoch(RandomGenerator random, Collection<State> restored) {
        long epoch = (attempt << SPREAD_BITS) + random.nextLong(FIRST_SPREAD);
        for (State state : restored) {
            if (state.epoch >= epoch) {
                epoch = state.epoch + 1 + random.nextLong(NEXT_SPREAD);
            }
        }
        return epoch;
    }

    /** In all delivery modes, so that a change of the mode finds the same operators. */
    @Override
    public Committer<Committable> createCommitter(CommitterInitContext context) {
        return new MqttCommitter(
                link,
                settings,
                ResendWindows.keyOf(context, link),
                resendsOnly,
                context.metricGroup());
    }

    @Override
    public SimpleVersionedSerializer<Committable> getCommittableSerializer() {
        return new Committable.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<State> getWriterStateSerializer() {
        return new StateSerializer();
    }

    static final class StateSerializer implements SimpleVersionedSerializer<State> {
        private static final int VERSION = 3;
        private final Committable.Serializer committables = new Committable.Serializer();

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(State state) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeLong(state.epoch);
            out.writeLong(state.number);
            out.writeBoolean(state.exact);
            out.writeBoolean(state.recent != null);
            if (state.recent != null) {
                out.writeInt(committables.getVersion());
                out.write(committables.serialize(state.recent));
            }
            return bytes.toByteArray();
        }

        @Override
        public State deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read sink state of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new State(
                    in.readLong(),
                    in.readLong(),
                    in.readBoolean(),
                    in.readBoolean()
                            ? committables.deserialize(in.readInt(), in.readAllBytes())
                            : null);
        }
    }
}
