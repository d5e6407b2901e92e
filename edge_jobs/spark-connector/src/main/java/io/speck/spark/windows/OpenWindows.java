package io.speck.spark.windows;

import io.speck.jobs.Detection;
import io.speck.jobs.Totals;
import io.speck.jobs.Windows;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * The windows of a job that are not forgotten yet. A detection that comes after its window's result
 * gives the whole result again with the next revision, until the window is forgotten.
 */
final class OpenWindows {
    private static final Comparator<Key> BY_TIME =
            Comparator.comparingLong(Key::startMs).thenComparing(Key::group);

    private final Windows windows;
    private final Statistic statistic;
    private final Map<Key, OpenWindow> open = new TreeMap<>(BY_TIME);

    private record Key(long startMs, String group) {}

    OpenWindows(Windows windows, Statistic statistic) {
        this.windows = windows;
        this.statistic = statistic;
    }

    /** Counts a detection in its window. */
    void add(Detection detection, long time, BatchResults batch) throws IOException {
        long startMs = windows.startOf(detection.timeMs);
        if (windows.forgottenAt(startMs) <= time) {
            batch.count(Count.LATE_DROPPED);
            return;
        }
        Key key = new Key(startMs, statistic.groupOf(detection));
        OpenWindow window = open.computeIfAbsent(key, any -> new OpenWindow());
        if (!statistic.add(window, detection)) {
            batch.count(Count.REPEATS);
        } else if (windows.dueAt(startMs) <= time) {
            emit(key, window, batch);
        }
    }

    /** Gives the results that are due now, and forgets windows. */
    void pass(long time, BatchResults batch) throws IOException {
        Iterator<Map.Entry<Key, OpenWindow>> all = open.entrySet().iterator();
        while (all.hasNext()) {
            Map.Entry<Key, OpenWindow> each = all.next();
            long startMs = each.getKey().startMs;
            if (windows.dueAt(startMs) > time) {
                return;
            }
            if (each.getValue().totals.revision == Totals.NOT_EMITTED) {
                emit(each.getKey(), each.getValue(), batch);
            }
            if (windows.forgottenAt(startMs) <= time) {
                all.remove();
            }
        }
    }

    private void emit(Key key, OpenWindow window, BatchResults batch) throws IOException {
        window.totals.revision++;
        if (window.totals.revision > 0) {
            batch.count(Count.CORRECTIONS);
        }
        batch.add(statistic.toRecord(key.startMs, key.group, window));
    }

    void write(DataOutputStream out) throws IOException {
        out.writeInt(open.size());
        for (Map.Entry<Key, OpenWindow> each : open.entrySet()) {
            out.writeLong(each.getKey().startMs);
            StateText.write(out, each.getKey().group);
            each.getValue().write(out);
        }
    }

    void read(DataInputStream in) throws IOException {
        for (int left = in.readInt(); left > 0; left--) {
            Key key = new Key(in.readLong(), StateText.read(in));
            open.put(key, OpenWindow.read(in));
        }
    }
}
