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
 * @param clientId of the link, in a port of several; empty: the port has one
 * @param exact whether no record that was published has a number after this one
 * @param recent what was published not long ago, and where, as a committable without messages of its
 *     own; null under exactly_once, where the committables have it
 */
public record SinkState(
        String clientId, long epoch, long number, boolean exact, Committable recent) {
    /** Returns what was published not long ago over the link. */
    List<NumberedMessages> recentOver(LinkConfig link) {
        return recent != null && recent.isFor(link) ? recent.recent() : List.of();
    }

    /** Of the form that checkpoints of running jobs hold. */
    public static final class Serializer implements StateSerializer<SinkState> {
        private static final int OF_ONE_LINK = 3;
        private static final int OF_SEVERAL_LINKS = 4; // begins with the client id
        private final Committable.Serializer committables = new Committable.Serializer();
        private final int version;

        /** @param links how many the port has whose state is written; each state is read */
        public Serializer(int links) {
            this.version = links == 1 ? OF_ONE_LINK : OF_SEVERAL_LINKS;
        }

        @Override
        public int getVersion() {
            return version;
        }

        @Override
        public byte[] serialize(SinkState state) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            if (version == OF_SEVERAL_LINKS) {
                out.writeUTF(state.clientId);
            }
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
        public SinkState deserialize(int written, byte[] bytes) throws IOException {
            if (written != OF_ONE_LINK && written != OF_SEVERAL_LINKS) {
                throw new IOException("cannot read sink state of version " + written);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new SinkState(
                    written == OF_SEVERAL_LINKS ? in.readUTF() : "",
                    in.readLong(),
                    in.readLong(),
                    in.readBoolean(),
                    in.readBoolean()
                            ? committables.deserialize(in.readInt(), in.readAllBytes())
                            : null);
        }
    }
}
