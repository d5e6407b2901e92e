package io.speck.spark.windows;

import io.speck.jobs.Detection;
import io.speck.jobs.DetectionReader;
import io.speck.jobs.EventTime;
import io.speck.jobs.Windows;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * What a job of windows knows: its clock and its open windows; between batches it is bytes.
 *
 * <p>A batch depends on the state before it, its records and its time alone. Spark stores the time
 * of a batch in the offset log before it runs, so that a batch that is run again has the same one,
 * and gives the same results and the same state.
 *
 * <p>Silence is judged once all records of a batch have been heard, so that what has waited at the
 * broker counts first. The time between two batches counts as at most a quarter of the idle limit:
 * the job may have stood still, because it moved.
 */
public final class WindowState {
    private static final int VERSION = 1;
    private static final DetectionReader READER = new DetectionReader();

    private final Windows windows;
    private final Statistic statistic;
    private final EventTime clock;
    private final OpenWindows open;
    private final Detection detection = new Detection();
    private long batchMs; // when the last batch began
    private long livedMs; // how much time has counted up to then

    private WindowState(Windows windows, Statistic statistic, long batchMs, long livedMs) {
        this.windows = windows;
        this.statistic = statistic;
        this.clock = new EventTime(windows, livedMs);
        this.open = new OpenWindows(windows, statistic);
        this.batchMs = batchMs;
        this.livedMs = livedMs;
    }

    /** Returns the state of a job whose first batch begins at this time. */
    static WindowState begin(Windows windows, Statistic statistic, long atMs) {
        return new WindowState(windows, statistic, atMs, 0);
    }

    /**
     * Runs a batch.
     *
     * @param records in the order of the source
     * @param atMs when the batch begins, by the clock of its machine
     */
    public BatchResults run(Iterable<byte[]> records, long atMs) throws IOException {
        BatchResults batch = new BatchResults();
        long before = livedMs;
        livedMs += Math.max(0, Math.min(atMs - batchMs, Math.max(1, windows.idleLimitMs() / 4)));
        batchMs = atMs;
        for (byte[] record : records) {
            switch (READER.read(record, detection)) {
                case MALFORMED -> batch.count(Count.MALFORMED);
                case IMPOSSIBLE -> batch.count(Count.IMPOSSIBLE);
                case GOOD -> hear(before, batch);
            }
        }
        passTime(livedMs, batch);
        return batch;
    }

    private void hear(long judgedAtMs, BatchResults batch) throws IOException {
        switch (clock.hear(detection, livedMs)) {
            case UNDECLARED -> batch.count(Count.UNDECLARED);
            case JUMP -> batch.count(Count.JUMPS);
            case DECLARED -> {}
        }
        if (!detection.end) {
            open.add(detection, clock.time(), batch);
        }
        passTime(judgedAtMs, batch);
    }

    private void passTime(long judgedAtMs, BatchResults batch) throws IOException {
        if (clock.advance(judgedAtMs)) {
            open.pass(clock.time(), batch);
        }
    }

    /** Returns it for the next batch. */
    public byte[] toBytes() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(VERSION);
        out.writeUTF(statistic.name());
        out.writeLong(windows.lengthMs());
        out.writeLong(batchMs);
        out.writeLong(livedMs);
        clock.write(out);
        open.write(out);
        return bytes.toByteArray();
    }

    /**
     * Reads a state.
     *
     * @throws IllegalArgumentException when it is that of other windows or another statistic
     */
    static WindowState read(byte[] bytes, Windows windows, Statistic statistic)
            throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
        int version = in.readInt();
        if (version != VERSION) {
            throw new IOException("cannot read the state: it has version " + version);
        }
        String name = in.readUTF();
        long lengthMs = in.readLong();
        if (!name.equals(statistic.name()) || lengthMs != windows.lengthMs()) {
            throw new IllegalArgumentException(
                    "cannot go on with %s in windows of %d ms: the state holds %s in windows of %d"
                                    .formatted(
                                            statistic.name(), windows.lengthMs(), name, lengthMs)
                            + " ms; start the job without its state");
        }
        WindowState state = new WindowState(windows, statistic, in.readLong(), in.readLong());
        state.clock.read(in);
        state.open.read(in);
        return state;
    }
}
