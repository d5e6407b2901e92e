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
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Publishes each record as one message of one topic. Runs at parallelism 1. */
final class MqttSink implements Sink<byte[]>, SupportsWriterState<byte[], MqttSink.State> {
    private static final long serialVersionUID = 1L;
    private static final long FRESH_SPREAD = 1L << 31;
    private static final long NEXT_SPREAD = 1L << 24; // small: an attempt has room for many

    private final LinkConfig link;
    private final long attempt;
    private final boolean hasReaders;
    private final int mostBytes;

    /**
     * @param attempt of the incarnation; newer ones have higher numbers
     * @param hasReaders hold records that nobody has subscribed to, instead of letting them go
     * @param mostBytes larger records are left out and counted: a broker would close the connection
     *     at each of them, again and again
     */
    MqttSink(LinkConfig link, long attempt, boolean hasReaders, int mostBytes) {
        this.link = link;
        this.attempt = attempt;
        this.hasReaders = hasReaders;
        this.mostBytes = mostBytes;
    }

    /** The epoch that a writer had at a checkpoint, and its last number in it. */
    record State(long epoch, long number) {}

    @Override
    public SinkWriter<byte[]> createWriter(WriterInitContext context) {
        return restoreWriter(context, List.of());
    }

    @Override
    public StatefulSinkWriter<byte[], State> restoreWriter(
            WriterInitContext context, Collection<State> restored) {
        long epoch = newEpoch(new SecureRandom(), restored);
        return new MqttSinkWriter(
                link,
                epoch,
                hasReaders,
                mostBytes,
                context.getMailboxExecutor(),
                context.metricGroup());
    }

    /**
     * Numbers given after the last checkpoint may go to other records after a restore, so each
     * opening begins a new epoch: above the restored one, and unlike those of openings whose state
     * was never saved. The latter by chance: clocks step back, and what counts the openings forgets
     * with the engine.
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

    @Override
    public SimpleVersionedSerializer<State> getWriterStateSerializer() {
        return new StateSerializer();
    }

    static final class StateSerializer implements SimpleVersionedSerializer<State> {
        private static final int VERSION = 1;

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
            return bytes.toByteArray();
        }

        @Override
        public State deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read sink state of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new State(in.readLong(), in.readLong());
        }
    }
}
