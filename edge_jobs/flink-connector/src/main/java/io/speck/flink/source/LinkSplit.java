package io.speck.flink.source;

import io.speck.link.protocol.ReaderState;
import java.io.IOException;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** The one split of a source: the state of its reader. */
record LinkSplit(ReaderState state) implements SourceSplit {
    private static final String ID = "link";

    /** Creates the split of a source that has taken nothing. */
    static LinkSplit empty() {
        return new LinkSplit(ReaderState.empty());
    }

    @Override
    public String splitId() {
        return ID;
    }

    static final class Serializer implements SimpleVersionedSerializer<LinkSplit> {
        @Override
        public int getVersion() {
            return ReaderState.VERSION;
        }

        @Override
        public byte[] serialize(LinkSplit split) throws IOException {
            return split.state.toBytes();
        }

        @Override
        public LinkSplit deserialize(int version, byte[] bytes) throws IOException {
            return new LinkSplit(ReaderState.fromBytes(version, bytes));
        }
    }
}
