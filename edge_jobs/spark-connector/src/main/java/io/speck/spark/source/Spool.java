package io.speck.spark.source;

import io.speck.link.protocol.ReaderState;
import io.speck.spark.files.Durable;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * What a source has taken, in numbered segments: one for each batch. A segment holds the records in
 * their order and, before them, the state of the reader behind the last of them. It is on disk
 * before a batch is made of it, so that the batch is the same each time it is run.
 */
final class Spool {
    /**
     * So many segments stay below the one that a batch begins behind: in a session without {@link
     * io.speck.spark.files.SyncedFileManager} Spark's log may go back further after a power failure
     * than after a kill.
     */
    private static final int KEPT = 2;

    private final Path folder;
    private long last;

    private Spool(Path folder, long last) {
        this.folder = folder;
        this.last = last;
    }

    static Spool open(Path folder) throws IOException {
        List<Long> numbers = Durable.list(folder);
        return new Spool(folder, numbers.isEmpty() ? 0 : numbers.get(numbers.size() - 1));
    }

    Path folder() {
        return folder;
    }

    /** Returns the number of the newest segment; 0: there is none. */
    long last() {
        return last;
    }

    /** Returns the state of the reader behind the newest segment. */
    ReaderState newestState() throws IOException {
        if (last == 0) {
            return ReaderState.empty();
        }
        try (DataInputStream in = openSegment(folder, last)) {
            return readState(in);
        }
    }

    /** Adds a segment; it is on disk when this returns. */
    void add(ReaderState state, List<byte[]> records) throws IOException {
        byte[] stateBytes = state.toBytes();
        Durable.write(
                folder,
                last + 1,
                out -> {
                    out.writeInt(ReaderState.VERSION);
                    out.writeInt(stateBytes.length);
                    out.write(stateBytes);
                    out.writeInt(records.size());
                    for (byte[] record : records) {
                        out.writeInt(record.length);
                        out.write(record);
                    }
                });
        last++;
    }

    /** A batch that ended with this segment is committed. */
    void forgetBelow(long segment) throws IOException {
        Durable.deleteBelow(folder, segment - KEPT);
    }

    /** Opens a segment; behind its state follow the count of its records, and these. */
    static DataInputStream openSegment(Path folder, long segment) throws IOException {
        return new DataInputStream(
                new BufferedInputStream(
                        Files.newInputStream(folder.resolve(Long.toString(segment)))));
    }

    static ReaderState readState(DataInputStream in) throws IOException {
        int version = in.readInt();
        return ReaderState.fromBytes(version, in.readNBytes(in.readInt()));
    }
}
