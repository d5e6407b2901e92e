package io.speck.flink.source;

import io.speck.link.protocol.TakenNumbers;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * The one split of a source. It holds what was taken, but neither broker nor topic: these come from
 * the arguments at each start, so a job finds its numbers again after its link has moved.
 */
record LinkSplit(TakenNumbers taken) implements SourceSplit {
    private static final String ID = "link";

    /** Creates the split of a source that has taken nothing. */
    static LinkSplit empty() {
        return new LinkSplit(new TakenNumbers());
    }

    @Override
    public String splitId() {
        return ID;
    }

    static final class Serializer implements SimpleVersionedSerializer<LinkSplit> {
        private static final int VERSION = 3;

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(LinkSplit split) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            split.taken.write(out);
            return bytes.toByteArray();
        }

        @Override
        public LinkSplit deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read source state of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new LinkSplit(TakenNumbers.read(in));
        }
    }
}
