package io.speck.jobs;

import io.speck.link.Parameters;
import java.io.Serializable;
import java.time.Duration;
import java.util.List;

/**
 * Tumbling windows of event time, from the arguments.
 *
 * <p>{@code --streams A1,A2}: the streams whose least time is event time. {@code --window 60s}: the
 * length. {@code --idle-limit 120s}: how long (processing time) a silent stream holds time back; it
 * must exceed a move. {@code --lateness 10m}: how long (event time) after its end a window can
 * still be corrected. {@code --max-jump 1d}: how far (event time) one record may be ahead of all
 * before, see {@link EventTime}.
 */
public record Windows(
        List<String> streams, long lengthMs, long idleLimitMs, long latenessMs, long maxJumpMs)
        implements Serializable {
    static final String[] ARGUMENTS = {
        "streams", "window", "idle-limit", "lateness", "max-jump", "site"
    };

    /**
     * Returns those of a job's arguments.
     *
     * @throws IllegalArgumentException when one is missing or wrong
     */
    public static Windows from(Parameters parameters) {
        return new Windows(
                getStreams(parameters),
                parameters.getPositiveMillis("window", Duration.ofSeconds(60)),
                parameters.getPositiveMillis("idle-limit", Duration.ofSeconds(120)),
                parameters.getDuration("lateness", Duration.ofMinutes(10)).toMillis(),
                parameters.getPositiveMillis("max-jump", Duration.ofDays(1)));
    }

    private static List<String> getStreams(Parameters parameters) {
        List<String> streams = parameters.getList("streams");
        if (streams.isEmpty()) {
            throw new IllegalArgumentException(
                    "cannot use --streams \"\": it must name at least one stream, as in A1,A2");
        }
        return streams;
    }

    public long startOf(long timeMs) {
        return Math.floorDiv(timeMs, lengthMs) * lengthMs;
    }

    /**
     * Returns the last millisecond of a window: its result is due when event time has passed it.
     */
    public long dueAt(long startMs) {
        return startMs + lengthMs - 1;
    }

    /** Returns the event time at which a window is forgotten. */
    public long forgottenAt(long startMs) {
        return dueAt(startMs) + latenessMs;
    }
}
