package io.speck.link.protocol;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/**
 * A place in a log: of each of its series the number of records that lie before it. At a broker that
 * keeps no logs it has no series.
 *
 * @param offsets by series, as the broker's transport names them
 */
public record LogPosition(Map<String, Long> offsets) {
    public static final LogPosition NONE = new LogPosition(Map.of());

    public boolean isNone() {
        return offsets.isEmpty();
    }

    void write(DataOutput out) throws IOException {
        out.writeInt(offsets.size());
        for (Map.Entry<String, Long> each : new TreeMap<>(offsets).entrySet()) {
            out.writeUTF(each.getKey());
            out.writeLong(each.getValue());
        }
    }

    static LogPosition read(DataInput in) throws IOException {
        Map<String, Long> offsets = new TreeMap<>();
        for (int left = in.readInt(); left > 0; left--) {
            offsets.put(in.readUTF(), in.readLong());
        }
        return new LogPosition(offsets);
    }
}
