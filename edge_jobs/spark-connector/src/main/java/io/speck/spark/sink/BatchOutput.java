package io.speck.spark.sink;

import io.speck.link.sink.Committable;
import io.speck.link.sink.SinkState;
import io.speck.link.sink.StateSerializer;
import io.speck.spark.files.Durable;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * What a batch publishes, and the state of the writer behind it: the file {@code out/<batch>} in
 * the query's checkpoint. Once it is there, it is what the batch publishes, whatever a repeated run
 * gives: behind a shuffle rows come in another order, and some may be out already.
 */
record BatchOutput(List<Committable> committables, List<SinkState> states) {
    private static final int VERSION = 1;
    private static final StateSerializer<Committable> COMMITTABLES = new Committable.Serializer();

    /** Returns the number of the newest one; -1: there is none. */
    static long newest(Path folder) throws IOException {
        List<Long> batches = Durable.list(folder);
        return batches.isEmpty() ? -1 : batches.get(batches.size() - 1);
    }

    /** Returns that of a batch; null: it has none yet. */
    static BatchOutput read(Path folder, long batch, int links) throws IOException {
        Path file = folder.resolve(Long.toString(batch));
        if (!Files.exists(file)) {
            return null;
        }
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(Files.newInputStream(file)))) {
            int version = in.readInt();
            if (version != VERSION) {
                throw new IOException("cannot read %s: it has version %d".formatted(file, version));
            }
            return new BatchOutput(
                    readAll(in, COMMITTABLES), readAll(in, new SinkState.Serializer(links)));
        }
    }

    /** Stores it; it is on disk when this returns. */
    void write(Path folder, long batch, int links) throws IOException {
        Durable.write(
                folder,
                batch,
                out -> {
                    out.writeInt(VERSION);
                    writeAll(out, committables, COMMITTABLES);
                    writeAll(out, states, new SinkState.Serializer(links));
                });
    }

    private static <T> void writeAll(
            DataOutputStream out, List<T> all, StateSerializer<T> serializer) throws IOException {
        out.writeInt(serializer.getVersion());
        out.writeInt(all.size());
        for (T each : all) {
            byte[] bytes = serializer.serialize(each);
            out.writeInt(bytes.length);
            out.write(bytes);
        }
    }

    private static <T> List<T> readAll(DataInputStream in, StateSerializer<T> serializer)
            throws IOException {
        int version = in.readInt();
        int count = in.readInt();
        List<T> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(serializer.deserialize(version, in.readNBytes(in.readInt())));
        }
        return all;
    }
}
