package io.speck.flink.source;

import java.io.IOException;
import java.util.List;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Assigns the one split to the one reader, once; its state is whether it did. */
final class LinkEnumerator implements SplitEnumerator<LinkSplit, Boolean> {
    private final SplitEnumeratorContext<LinkSplit> context;
    private LinkSplit unassigned;

    LinkEnumerator(SplitEnumeratorContext<LinkSplit> context, boolean assigned) {
        this.context = context;
        this.unassigned = assigned ? null : LinkSplit.empty();
    }

    @Override
    public void start() {}

    @Override
    public void addReader(int subtask) {
        if (unassigned != null && subtask == 0) {
            context.assignSplit(unassigned, subtask);
            unassigned = null;
        }
    }

    @Override
    public void addSplitsBack(List<LinkSplit> splits, int subtask) {
        for (LinkSplit split : splits) {
            unassigned = split;
        }
        if (context.registeredReaders().containsKey(subtask)) {
            addReader(subtask);
        }
    }

    @Override
    public Boolean snapshotState(long checkpointId) {
        return unassigned == null;
    }

    @Override
    public void handleSplitRequest(int subtask, String host) {}

    @Override
    public void close() {}

    static final class Serializer implements SimpleVersionedSerializer<Boolean> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Boolean assigned) {
            return new byte[] {(byte) (assigned ? 1 : 0)};
        }

        @Override
        public Boolean deserialize(int version, byte[] bytes) throws IOException {
            if (version != 1 || bytes.length != 1) {
                throw new IOException("cannot read enumerator state of version " + version);
            }
            return bytes[0] == 1;
        }
    }
}
