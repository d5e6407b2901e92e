package io.speck.spark.windows;

import io.speck.jobs.IdRanges;
import io.speck.jobs.Totals;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/** The state of one window; a statistic fills what it needs. */
final class OpenWindow {
    final Totals totals = new Totals();
    final SortedMap<String, Long> sites = new TreeMap<>();
    final SortedMap<String, Long> types = new TreeMap<>();

    /** The ids that were counted, by stream. */
    final SortedMap<String, IdRanges> ids = new TreeMap<>();

    void write(DataOutputStream out) throws IOException {
        out.writeLong(totals.count);
        out.writeDouble(totals.speedSum);
        out.writeDouble(totals.coveredMs);
        out.writeInt(totals.revision);
        writeCounts(out, sites);
        writeCounts(out, types);
        out.writeInt(ids.size());
        for (Map.Entry<String, IdRanges> each : ids.entrySet()) {
            StateText.write(out, each.getKey());
            out.writeInt(each.getValue().bounds.length);
            for (long bound : each.getValue().bounds) {
                out.writeLong(bound);
            }
        }
    }

    static OpenWindow read(DataInputStream in) throws IOException {
        OpenWindow window = new OpenWindow();
        window.totals.count = in.readLong();
        window.totals.speedSum = in.readDouble();
        window.totals.coveredMs = in.readDouble();
        window.totals.revision = in.readInt();
        readCounts(in, window.sites);
        readCounts(in, window.types);
        for (int left = in.readInt(); left > 0; left--) {
            String stream = StateText.read(in);
            IdRanges ranges = new IdRanges();
            ranges.bounds = new long[in.readInt()];
            for (int i = 0; i < ranges.bounds.length; i++) {
                ranges.bounds[i] = in.readLong();
            }
            window.ids.put(stream, ranges);
        }
        return window;
    }

    private static void writeCounts(DataOutputStream out, Map<String, Long> counts)
            throws IOException {
        out.writeInt(counts.size());
        for (Map.Entry<String, Long> each : counts.entrySet()) {
            StateText.write(out, each.getKey());
            out.writeLong(each.getValue());
        }
    }

    private static void readCounts(DataInputStream in, Map<String, Long> counts)
            throws IOException {
        for (int left = in.readInt(); left > 0; left--) {
            String name = StateText.read(in);
            counts.put(name, in.readLong());
        }
    }
}
