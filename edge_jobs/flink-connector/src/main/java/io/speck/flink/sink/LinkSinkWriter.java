package io.speck.flink.sink;

import io.speck.link.sink.Committable;
import io.speck.link.sink.LinkWriter;
import io.speck.link.sink.SinkState;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;

/** Writes to a link what Flink gives to it. */
record LinkSinkWriter(LinkWriter writer)
        implements StatefulSinkWriter<byte[], SinkState>,
                CommittingSinkWriter<byte[], Committable> {
    @Override
    public void write(byte[] record, Context context) throws IOException, InterruptedException {
        writer.write(record);
    }

    @Override
    public void flush(boolean endOfInput) throws IOException, InterruptedException {
        writer.flush();
    }

    @Override
    public Collection<Committable> prepareCommit() {
        return writer.prepareCommit();
    }

    @Override
    public List<SinkState> snapshotState(long checkpoint) {
        return writer.snapshot();
    }

    @Override
    public void close() {
        writer.close();
    }
}
