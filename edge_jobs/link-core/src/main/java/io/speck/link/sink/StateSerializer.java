package io.speck.link.sink;

import java.io.IOException;

/** Writes a sink's state as bytes of a version, and reads them. */
public interface StateSerializer<T> {
    int getVersion();

    byte[] serialize(T state) throws IOException;

    /** @throws IOException when the bytes are of another version, or damaged */
    T deserialize(int version, byte[] bytes) throws IOException;
}
