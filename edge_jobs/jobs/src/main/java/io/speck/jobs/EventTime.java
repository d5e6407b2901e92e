package io.speck.jobs;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Event time of several streams on one topic: the least of the declared streams' last times.
 *
 * <p>A stream that is not heard yet, or pauses because the job before it moves, holds time back
 * until it has been silent for the idle limit (processing time, which callers pass).
 *
 * <p>An end mark takes its stream out of the minimum. When every stream has ended, or is silent
 * past the limit while others ended, time goes to the end of the last ended window, so that windows
 * close. A detection after all have ended begins a new round: end marks and last times are
 * forgotten, but event time itself never goes back, so detections of a round that starts at earlier
 * times are late. So is a detection that only trails its stream's end mark.
 *
 * <p>A time further ahead of all times before than the limit on jumps does not move event time,
 * unless it is the {@value #JUMPS_BELIEVED}th of its stream in a row.
 *
 * <p>Time goes on in steps of one window; finer steps would change nothing.
 */
public final class EventTime {
    public static final long NO_TIME = StreamTime.NOT_HEARD;
    private static final int JUMPS_BELIEVED = 5;

    private final Windows windows;
    private final Map<String, DeclaredStream> streams = new LinkedHashMap<>();
    private long time = NO_TIME;

    /** What was heard. */
    public enum Heard {
        DECLARED,
        /** Of a stream that was not declared: it does not move time. */
        UNDECLARED,
        /** A time too far ahead: it does not move time. */
        JUMP
    }

    /** @param nowMs silence is counted from now */
    public EventTime(Windows windows, long nowMs) {
        this.windows = windows;
        for (String name : windows.streams()) {
            streams.put(name, new DeclaredStream(new StreamTime(name), nowMs));
        }
    }

    /** Event time, up to which results are due; {@link #NO_TIME} before there is any. */
    public long time() {
        return time;
    }

    /** Returns what {@link #restore} wants besides time: last times and end marks. */
    List<StreamTime> streamTimes() {
        return streams.values().stream().map(stream -> stream.time).toList();
    }

    /** Goes on from an earlier state; streams that are no longer declared are dropped. */
    void restore(Iterable<StreamTime> saved, long savedTime) {
        time = savedTime;
        for (StreamTime each : saved) {
            DeclaredStream stream = streams.get(each.stream);
            if (stream != null) {
                stream.time = each;
            }
        }
    }

    /** Takes note of a detection, or of an end mark. */
    public Heard hear(Detection detection, long nowMs) {
        DeclaredStream stream = streams.get(detection.stream);
        if (stream == null) {
            return Heard.UNDECLARED;
        }
        if (!detection.end && allEnded()) {
            beginNewRound(nowMs);
        }
        stream.heardMs = nowMs;
        stream.time.ended |= detection.end;
        if (!isCredible(stream, detection)) {
            return Heard.JUMP;
        }
        stream.time.lastMs = Math.max(stream.time.lastMs, detection.timeMs);
        return Heard.DECLARED;
    }

    /**
     * One wrong time far ahead would make everything after it late for ever; several in a row are
     * no mistake. An end mark has no second one, so it is never believed by itself.
     */
    private boolean isCredible(DeclaredStream stream, Detection detection) {
        long known = time;
        for (DeclaredStream any : streams.values()) {
            known = Math.max(known, any.time.lastMs);
        }
        if (known == NO_TIME || detection.timeMs - windows.maxJumpMs() <= known) {
            stream.jumps = 0;
            return true;
        }
        if (!detection.end && ++stream.jumps >= JUMPS_BELIEVED) {
            stream.jumps = 0;
            return true;
        }
        return false;
    }

    private boolean allEnded() {
        for (DeclaredStream stream : streams.values()) {
            if (!stream.time.ended) {
                return false;
            }
        }
        return true;
    }

    private void beginNewRound(long nowMs) {
        for (DeclaredStream stream : streams.values()) {
            stream.time.ended = false;
            stream.time.lastMs = StreamTime.NOT_HEARD;
            stream.heardMs = nowMs;
        }
    }

    /** Lets time go on when the streams allow it; returns whether it has. */
    public boolean advance(long nowMs) {
        long reached = findReachedTime(nowMs - windows.idleLimitMs());
        if (reached == StreamTime.NOT_HEARD) {
            return false;
        }
        // a later detection may still have the very time reached, so that one is not over yet
        long step = windows.startOf(reached) - 1;
        if (step <= time) {
            return false;
        }
        time = step;
        return true;
    }

    /**
     * Returns the least last time of the streams that count; NOT_HEARD when one is still awaited.
     */
    private long findReachedTime(long silentSinceMs) {
        long least = Long.MAX_VALUE;
        long lastEnded = StreamTime.NOT_HEARD;
        for (DeclaredStream stream : streams.values()) {
            if (stream.time.ended) {
                lastEnded = Math.max(lastEnded, stream.time.lastMs);
            } else if (stream.heardMs > silentSinceMs) {
                least = Math.min(least, stream.time.lastMs);
            }
        }
        if (least != Long.MAX_VALUE || lastEnded == StreamTime.NOT_HEARD) {
            return least == Long.MAX_VALUE ? StreamTime.NOT_HEARD : least;
        }
        return windows.startOf(lastEnded) + windows.lengthMs();
    }

    /** Writes all of it, silence too; times are stored as callers passed them. */
    public void write(DataOutput out) throws IOException {
        out.writeLong(time);
        out.writeInt(streams.size());
        for (DeclaredStream each : streams.values()) {
            out.writeUTF(each.time.stream);
            out.writeLong(each.time.lastMs);
            out.writeBoolean(each.time.ended);
            out.writeLong(each.heardMs);
            out.writeInt(each.jumps);
        }
    }

    /** Goes on from what was written; streams that are no longer declared are dropped. */
    public void read(DataInput in) throws IOException {
        time = in.readLong();
        for (int left = in.readInt(); left > 0; left--) {
            StreamTime saved = new StreamTime(in.readUTF());
            saved.lastMs = in.readLong();
            saved.ended = in.readBoolean();
            DeclaredStream stream = new DeclaredStream(saved, in.readLong());
            stream.jumps = in.readInt();
            streams.replace(saved.stream, stream);
        }
    }

    /** A stream's time, and when (processing time) it was heard last. */
    private static final class DeclaredStream {
        StreamTime time;
        long heardMs;
        int jumps; // times in a row that were too far ahead

        DeclaredStream(StreamTime time, long heardMs) {
            this.time = time;
            this.heardMs = heardMs;
        }
    }
}
