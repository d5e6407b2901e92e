package io.speck.mqtt;

import java.time.Duration;
import java.util.ArrayDeque;
import org.apache.flink.metrics.Counter;

/**
 * Records that the broker has acknowledged not long ago.
 *
 * <p>Mosquitto acknowledges before it has anything on disk: a broker that is killed forgets what
 * came since its last autosave. So a sink sends these again after each loss of its connection;
 * readers drop the repeats by their numbers. The time counts from the last acknowledgement, since
 * after a kill nothing of an earlier one is left.
 *
 * <p>Used by one thread.
 */
final class ResendWindow {
    /** About what a record takes besides its payload. */
    static final int OVERHEAD_BYTES = 100;

    private final ArrayDeque<OutRecord> records = new ArrayDeque<>();
    private final long spanNs;
    private final long mostBytes;
    private final Counter cut;
    private long bytes;

    /**
     * @param mostBytes what goes beyond is forgotten early, the oldest first
     * @param cut counts what was
     */
    ResendWindow(Duration span, long mostBytes, Counter cut) {
        this.spanNs = span.toNanos();
        this.mostBytes = mostBytes;
        this.cut = cut;
    }

    void add(OutRecord record, long nowNs) {
        if (spanNs == 0) {
            return;
        }
        record.acknowledgedNs = nowNs;
        records.add(record);
        bytes += size(record);
        while (bytes > mostBytes) {
            forgetOldest();
            cut.inc();
        }
    }

    void prune(long nowNs) {
        OutRecord oldest;
        while ((oldest = records.peek()) != null && nowNs - oldest.acknowledgedNs > spanNs) {
            forgetOldest();
        }
    }

    int size() {
        return records.size();
    }

    /**
     * Puts all before what is in the queue already, in order, and is empty then.
     *
     * @return how many bytes of payload that is
     */
    long moveBefore(ArrayDeque<OutRecord> queue) {
        long moved = bytes - (long) records.size() * OVERHEAD_BYTES;
        while (!records.isEmpty()) {
            queue.addFirst(records.pollLast());
        }
        bytes = 0;
        return moved;
    }

    private void forgetOldest() {
        bytes -= size(records.poll());
    }

    private static long size(OutRecord record) {
        return record.payload.length + OVERHEAD_BYTES;
    }
}
