package io.speck.link.protocol;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * What a checkpoint keeps of a reader. It names neither broker nor topic: these come from the
 * arguments at each start, so a job finds its numbers again after its link has moved.
 *
 * @param position up to where it has read the log, at a broker that keeps one: also of records
 *     without numbers it is known then whether they were taken
 */
public record ReaderState(TakenNumbers taken, LogPosition position) {
    /** The version of the bytes; those of before there were positions are read, too. */
    public static final int VERSION = 3;

    /** Creates the state of a reader that has taken nothing. */
    public static ReaderState empty() {
        return new ReaderState(new TakenNumbers(), LogPosition.NONE);
    }

    /** Returns bytes of {@link #VERSION}. Without a position they are those of the numbers alone. */
    public byte[] toBytes() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        taken.write(out);
        if (!position.isNone()) {
            position.write(out);
        }
        return bytes.toByteArray();
    }

    /** @throws IOException if the bytes are of another version, or damaged */
    public static ReaderState fromBytes(int version, byte[] bytes) throws IOException {
        if (version != VERSION) {
            throw new IOException("cannot read source state of version " + version);
        }
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
        TakenNumbers taken = TakenNumbers.read(in);
        return new ReaderState(
                taken, in.available() > 0 ? LogPosition.read(in) : LogPosition.NONE);
    }
}
