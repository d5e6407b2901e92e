package io.speck.jobs;

/** How far one declared stream has come; part of the state of {@link EventTime}. */
public final class StreamTime {
    /** Stands for a stream that was not heard yet. */
    static final long NOT_HEARD = Long.MIN_VALUE;

    public String stream = "";
    public long lastMs = NOT_HEARD;
    public boolean ended;

    public StreamTime() {}

    StreamTime(String stream) {
        this.stream = stream;
    }
}
