package io.speck.mqtt;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.metrics.Counter;

/**
 * Records that the broker has acknowledged not long ago.
 *
 * <p>Mosquitto acknowledges before it has anything on disk: a broker that is killed forgets what
 * came since its last autosave. So a sink sends these again after a loss of its connection, unless
 * the broker says that it has them; readers drop the repeats by their numbers. The time counts from
 * the last acknowledgement, since after a kill nothing of an earlier one is left.
 *
 * <p>The newest are kept in checkpoints, too: engine and broker of a site may fall together.
 *
 * <p>Thread-safe: an outlet fills it, and whoever makes a checkpoint looks into it.
 */
final class ResendWindow {
    /** About what a record takes besides its payload. */
    static final int OVERHEAD_BYTES = 100;

    private final ArrayDeque<OutRecord> records = new ArrayDeque<>();
    private final long spanNs;
    private final long mostBytes;
    private final long mostStateBytes;
    private final Counter cut;
    private long bytes;
    private volatile int leftOut;

    /**
     * @param mostBytes what goes beyond is forgotten early, the oldest first
     * @param mostStateBytes how much of it a checkpoint gets, the newest
     * @param cut counts what was forgotten early
     */
    ResendWindow(Duration span, long mostBytes, long mostStateBytes, Counter cut) {
        this.spanNs = span.toNanos();
        this.mostBytes = mostBytes;
        this.mostStateBytes = mostStateBytes;
        this.cut = cut;
    }

    /** Notes an acknowledgement, also a second one. */
    synchronized void add(OutRecord record, long nowNs) {
        if (spanNs == 0) {
            return;
        }
        record.acknowledgedNs = nowNs;
        record.again = false;
        if (record.kept) {
            return; // in its place: what is sent again goes before what is new
        }
        record.kept = true;
        records.add(record);
        bytes += size(record);
        while (bytes > mostBytes) {
            forgetOldest();
            cut.inc();
        }
    }

    synchronized void prune(long nowNs) {
        OutRecord oldest;
        while ((oldest = records.peek()) != null
                && !oldest.again
                && nowNs - oldest.acknowledgedNs > spanNs) {
            forgetOldest();
        }
    }

    /** A record that will not be sent again after all. */
    synchronized void forget(OutRecord record) {
        if (record.kept && records.remove(record)) {
            record.kept = false;
            bytes -= size(record);
        }
    }

    synchronized int size() {
        return records.size();
    }

    /**
     * What is to be sent again, in order. It stays here meanwhile, for checkpoints.
     *
     * @param known what the broker says that it has; null: it says nothing
     */
    synchronized List<OutRecord> sendAgain(SentNumber known) {
        ArrayList<OutRecord> missing = new ArrayList<>();
        for (Iterator<OutRecord> newest = records.descendingIterator(); newest.hasNext(); ) {
            OutRecord record = newest.next();
            if (known != null && known.covers(record)) {
                break; // a broker that has this has all that it was given before
            }
            record.again = true;
            missing.add(record);
        }
        Collections.reverse(missing);
        return missing;
    }

    /** For a checkpoint: as much of it as that may take. */
    synchronized List<Run> snapshot(long nowNs) {
        prune(nowNs);
        ArrayDeque<OutRecord> newest = new ArrayDeque<>();
        long room = mostStateBytes;
        for (Iterator<OutRecord> it = records.descendingIterator(); it.hasNext(); ) {
            OutRecord record = it.next();
            room -= record.payload.length + Run.LENGTH_BYTES;
            if (room < 0) {
                break;
            }
            newest.addFirst(record);
        }
        leftOut = records.size() - newest.size();
        return Run.of(newest);
    }

    /** How many records the last checkpoint had no room for. */
    int leftOut() {
        return leftOut;
    }

    private void forgetOldest() {
        OutRecord oldest = records.poll();
        oldest.kept = false;
        bytes -= size(oldest);
    }

    private static long size(OutRecord record) {
        return record.payload.length + OVERHEAD_BYTES;
    }
}
