package io.speck.mqtt;

import java.util.ArrayList;
import java.util.List;

/** A message on its way out: one record, or several under successive numbers. */
final class OutRecord {
    static final int UNDER_WAY = 0;
    static final int DELIVERED = 1;

    /** Not taken by the broker now (not allowed, quota): worth another try. */
    static final int REFUSED = 2;

    /** Never to be taken by the broker (too large). */
    static final int UNDELIVERABLE = 3;

    /** The connection ended before: the outlet notices that by itself. */
    static final int CUT_OFF = 4;

    /** Nobody has subscribed to the topic: the broker has dropped it. */
    static final int UNREAD = 5;

    final Series series; // null: sent without a stamp
    final long number; // of the first record
    final Parcel parcel;
    final byte[] payload;

    /** What the client library was given, to tell its results apart. */
    volatile Object sent;

    String problem; // published by the write of outcome
    volatile int outcome;

    // of the resend window, under its lock
    boolean kept;
    boolean again; // on its way once more
    long acknowledgedNs; // the last time

    OutRecord(Series series, long number, byte[] payload) {
        this(series, number, Parcel.of(payload));
    }

    OutRecord(Series series, long number, Parcel parcel) {
        this.series = series;
        this.number = number;
        this.parcel = parcel;
        this.payload = parcel.payload();
    }

    /** The number of its last record. */
    long last() {
        return number + parcel.count() - 1;
    }

    String stamp() {
        String first = series.prefix() + number;
        return parcel.isPlain() ? first : Stamp.withCount(first, parcel.count());
    }

    /** The same records under the same numbers, each on its own. */
    List<OutRecord> split() {
        List<OutRecord> records = new ArrayList<>(parcel.count());
        long next = number;
        for (byte[] record : Frames.all(parcel)) {
            records.add(new OutRecord(series, next++, record));
        }
        return records;
    }
}
