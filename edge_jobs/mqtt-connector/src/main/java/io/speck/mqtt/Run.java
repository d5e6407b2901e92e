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
record Run(Series series, long first, List<Parcel> parcels) {
    /** What a payload takes besides itself, at most. */
    static final int LENGTH_BYTES = 4 + 1 + 4;

    private static final Parcel.Form[] FORMS = Parcel.Form.values();

    /** In the same order. */
    static List<Run> of(Collection<OutRecord> records) {
        List<Run> runs = new ArrayList<>();
        OutRecord before = null;
        for (OutRecord record : records) {
            if (before == null || !isFollowed(before, record)) {
                runs.add(new Run(record.series, record.number, new ArrayList<>()));
            }
            runs.get(runs.size() - 1).parcels.add(record.parcel);
            before = record;
        }
        return runs;
    }

    private static boolean isFollowed(OutRecord before, OutRecord record) {
        return record.number == before.last() + 1 && record.series.equals(before.series);
    }

    List<OutRecord> records() {
        List<OutRecord> records = new ArrayList<>(parcels.size());
        long number = first;
        for (Parcel parcel : parcels) {
            records.add(new OutRecord(series, number, parcel));
            number += parcel.count();
        }
        return records;
    }

    void write(DataOutput out) throws IOException {
        out.writeUTF(series.producer());
        out.writeLong(series.epoch());
        out.writeLong(first);
        out.writeInt(parcels.size());
        for (Parcel parcel : parcels) {
            out.writeInt(parcel.payload().length);
            out.writeByte(parcel.form().ordinal());
            if (!parcel.isPlain()) {
                out.writeInt(parcel.count());
            }
            out.write(parcel.payload());
        }
    }

    /** @param old from before there was more than one record to a message */
    static Run read(DataInput in, boolean old) throws IOException {
        Series series = Series.of(in.readUTF(), in.readLong());
        long first = in.readLong();
        int count = in.readInt();
        List<Parcel> parcels = new ArrayList<>(Math.min(count, 1 << 16));
        for (int i = 0; i < count; i++) {
            byte[] payload = new byte[in.readInt()];
            Parcel.Form form = old ? Parcel.Form.PLAIN : FORMS[in.readByte()];
            int records = form == Parcel.Form.PLAIN ? 1 : in.readInt();
            in.readFully(payload);
            parcels.add(new Parcel(form, records, payload));
        }
        return new Run(series, first, parcels);
    }

    static void writeAll(List<Run> runs, DataOutput out) throws IOException {
        out.writeInt(runs.size());
        for (Run run : runs) {
            run.write(out);
        }
    }

    static List<Run> readAll(DataInput in, boolean old) throws IOException {
        int count = in.readInt();
        List<Run> runs = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            runs.add(read(in, old));
        }
        return runs;
    }
}
