package io.speck.flink.sink;

import io.speck.link.sink.StateSerializer;
import java.io.IOException;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Writes and reads the core's state for Flink's checkpoints. */
record FlinkSerializer<T>(StateSerializer<T> serializer) implements SimpleVersionedSerializer<T> {
    @Override
    public int getVersion() {
        return serializer.getVersion();
    }

    @Override
    public byte[] serialize(T state) throws IOException {
        return serializer.serialize(state);
    }

    @Override
    public T deserialize(int version, byte[] bytes) throws IOException {
        return serializer.deserialize(version, bytes);
    }
}
