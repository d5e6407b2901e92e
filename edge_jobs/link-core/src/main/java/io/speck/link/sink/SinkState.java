package io.speck.link.sink;

import io.speck.link.transport.LinkConfig;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.List;

/**
 * The state of a writer: its epoch, and its last number in it.
 *
 * @param exact whether no record that was published has a number after this one
 * @param recent what was published not long ago, and where, as a committable without messages of its
 *     own; null under exactly_once, where the committables have it
 */
public record SinkState(long epoch, long number, boolean exact, Committable recent) {
    /** Returns what was published not long ago over the link. */
    List<NumberedMessages> recentOver(LinkConfig link) {
        return recent != null && recent.isFor(link) ? recent.recent() : List.of();
    }

    /** Of the form that checkpoints of running jobs hold. */
    public static final class Serializer implements StateSerializer<SinkState> {
        private static final int VERSION = 3;
        private final Committable.Serializer committables = new Committable.Serializer();

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(SinkState state) throws IOException {
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
        public SinkState deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read sink state of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new SinkState(
                    in.readLong(),
                    in.readLong(),
                    in.readBoolean(),
                    in.readBoolean()
                            ? committables.deserialize(in.readInt(), in.readAllBytes())
                            : null);
        }
    }
}
