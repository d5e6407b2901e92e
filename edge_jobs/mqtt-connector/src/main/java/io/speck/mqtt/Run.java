package io.speck.mqtt;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Records of one series without holes between their numbers, as checkpoints hold them.
 *
 * @param first number
 */
record Run(Series series, long first, List<byte[]> payloads) {
    /** What a payload takes besides itself. */
    static final int LENGTH_BYTES = 4;

    /** In the same order. */
    static List<Run> of(Collection<OutRecord> records) {
        List<Run> runs = new ArrayList<>();
        Run last = null;
        for (OutRecord record : records) {
            if (last == null || !last.isFollowedBy(record)) {
                last = new Run(record.series, record.number, new ArrayList<>());
                runs.add(last);
            }
            last.payloads.add(record.payload);
        }
        return runs;
    }

    private boolean isFollowedBy(OutRecord record) {
        return record.number == first + payloads.size() && record.series.equals(series);
    }

    List<OutRecord> records() {
        List<OutRecord> records = new ArrayList<>(payloads.size());
        long number = first;
        for (byte[] payload : payloads) {
            records.add(new OutRecord(series, number++, payload));
        }
        return records;
    }

    void write(DataOutput out) throws IOException {
        out.writeUTF(series.producer());
        out.writeLong(series.epoch());
        out.writeLong(first);
        out.writeInt(payloads.size());
        for (byte[] payload : payloads) {
            out.writeInt(payload.length);
            out.write(payload);
        }
    }

    static Run read(DataInput in) throws IOException {
        Series series = Series.of(in.readUTF(), in.readLong());
        long first = in.readLong();
        int count = in.readInt();
        List<byte[]> payloads = new ArrayList<>(Math.min(count, 1 << 16));
        for (int i = 0; i < count; i++) {
            byte[] payload = new byte[in.readInt()];
            in.readFully(payload);
            payloads.add(payload);
        }
        return new Run(series, first, payloads);
    }

    static void writeAll(List<Run> runs, DataOutput out) throws IOException {
        out.writeInt(runs.size());
        for (Run run : runs) {
            run.write(out);
        }
    }

    static List<Run> readAll(DataInput in) throws IOException {
        int count = in.readInt();
        List<Run> runs = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            runs.add(read(in));
        }
        return runs;
    }
}
