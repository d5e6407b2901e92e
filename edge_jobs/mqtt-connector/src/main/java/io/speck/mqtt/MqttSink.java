package io.speck.mqtt;

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

/** Publishes records as messages of one topic. Runs at parallelism 1. */
final class MqttSink
        implements Sink<byte[]>,
                SupportsWriterState<byte[], MqttSink.State>,
                SupportsCommitter<Batch> {
    private static final long serialVersionUID = 1L;
    private static final long FRESH_SPREAD = 1L << 31;
    private static final long NEXT_SPREAD = 1L << 24; // small: an attempt has room for many

    private final LinkConfig link;
    private final long attempt;
    private final SinkSettings settings;

    /** @param attempt of the incarnation; newer ones have higher numbers */
    MqttSink(LinkConfig link, long attempt, SinkSettings settings) {
        this.link = link;
        this.attempt = attempt;
        this.settings = settings;
    }

    /**
     * The epoch that a writer had at a checkpoint, and its last number in it.
     *
     * @param exact numbers after this one were not given to any record that got out
     * @param recent what was published not long ago, and where, as a batch without records of its
     *     own; null under exactly_once, where the committables have it
     */
    record State(long epoch, long number, boolean exact, Batch recent) {
        List<Run> recentOver(LinkConfig link) {
            return recent != null && recent.isFor(link) ? recent.before() : List.of();
        }
    }

    @Override
    public SinkWriter<byte[]> createWriter(WriterInitContext context) {
        return restoreWriter(context, List.of());
    }

    @Override
    public SpeckWriter restoreWriter(WriterInitContext context, Collection<State> restored) {
        boolean exact = link.delivery() == Delivery.EXACTLY_ONCE;
        State before =
                exact ? restored.stream().filter(State::exact).findFirst().orElse(null) : null;
        String producer = Stamp.producerOf(link.clientId().replaceFirst("-out$", ""));
        if (before != null) {
            return new BatchWriter(
                            link,
                            Series.of(producer, before.epoch),
                            before.number,
                            settings,
                            Windows.key(context, link),
                            context.metricGroup())
                    .start();
        }
        List<Run> recent =
                restored.stream().flatMap(state -> state.recentOver(link).stream()).toList();
        Series series = Series.of(producer, newEpoch(new SecureRandom(), restored));
        return exact
                ? new BatchWriter(
                                link,
                                series,
                                0,
                                settings,
                                Windows.key(context, link),
                                context.metricGroup())
                        .start()
                : new MqttSinkWriter(
                                link,
                                series,
                                settings,
                                context.getMailboxExecutor(),
                                context.getProcessingTimeService(),
                                context.metricGroup())
                        .start(recent)
                        .awaitReady();
    }

    /**
     * Unless they wait for a checkpoint, numbers given after the last one may go to other records
     * after a restore, so each opening begins a new epoch: above the restored one, and unlike those
     * of openings whose state was never saved. The latter by chance: clocks step back, and what
     * counts the openings forgets with the engine.
     */
    long newEpoch(RandomGenerator random, Collection<State> restored) {
        long epoch = (attempt << 32) + random.nextLong(FRESH_SPREAD);
        for (State state : restored) {
            if (state.epoch >= epoch) {
                epoch = state.epoch + 1 + random.nextLong(NEXT_SPREAD);
            }
        }
        return epoch;
    }

    /** In all delivery modes, so that a change of the mode finds the same operators. */
    @Override
    public Committer<Batch> createCommitter(CommitterInitContext context) {
        return new MqttCommitter(
                link, settings, Windows.key(context, link), context.metricGroup());
    }

    @Override
    public SimpleVersionedSerializer<Batch> getCommittableSerializer() {
        return new Batch.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<State> getWriterStateSerializer() {
        return new StateSerializer();
    }

    static final class StateSerializer implements SimpleVersionedSerializer<State> {
        private static final int VERSION = 3; // 1 had no `exact`, 2 no `recent`
        private final Batch.Serializer batches = new Batch.Serializer();

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
                out.writeInt(batches.getVersion());
                out.write(batches.serialize(state.recent));
            }
            return bytes.toByteArray();
        }

        @Override
        public State deserialize(int version, byte[] bytes) throws IOException {
            if (version < 1 || version > VERSION) {
                throw new IOException("cannot read sink state of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new State(
                    in.readLong(),
                    in.readLong(),
                    version > 1 && in.readBoolean(),
                    version > 2 && in.readBoolean()
                            ? batches.deserialize(in.readInt(), in.readAllBytes())
                            : null);
        }
    }
}
