package io.speck.mqtt;

/** A record on its way out. */
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
    final long number;
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
        this.series = series;
        this.number = number;
        this.payload = payload;
    }
}
