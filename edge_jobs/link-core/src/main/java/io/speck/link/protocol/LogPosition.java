package io.speck.link.protocol;

import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/**
 * A place in a log: of each of its series the number of records that lie before it. At a broker that
 * keeps no logs it has no series.
 *
 * @param offsets by series, as the broker's transport names them
 * @param terms by series: in which term of its leader the last of these records was written, if that
 *     is known. A log that was cut, and has grown since, is told by it from one that has them still
 */
public record LogPosition(Map<String, Long> offsets, Map<String, Integer> terms) {
    public static final LogPosition NONE = new LogPosition(Map.of());

    public LogPosition(Map<String, Long> offsets) {
        this(offsets, Map.of());
    }

    public boolean isNone() {
        return offsets.isEmpty();
    }

    void write(DataOutput out) throws IOException {
        out.writeInt(offsets.size());
        for (Map.Entry<String, Long> each : new TreeMap<>(offsets).entrySet()) {
            out.writeUTF(each.getKey());
            out.writeLong(each.getValue());
        }
        out.writeInt(terms.size());
        for (Map.Entry<String, Integer> each : new TreeMap<>(terms).entrySet()) {
            out.writeUTF(each.getKey());
            out.writeInt(each.getValue());
        }
    }

    /** Reads one that nothing follows; those of before there were terms end without them. */
    static LogPosition read(DataInputStream in) throws IOException {
        Map<String, Long> offsets = new TreeMap<>();
        for (int left = in.readInt(); left > 0; left--) {
            offsets.put(in.readUTF(), in.readLong());
        }
        Map<String, Integer> terms = new TreeMap<>();
        for (int left = in.available() > 0 ? in.readInt() : 0; left > 0; left--) {
            terms.put(in.readUTF(), in.readInt());
        }
        return new LogPosition(offsets, terms);
    }
}
