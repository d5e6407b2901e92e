package io.speck.jobs;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.metrics.Counter;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;

/**
 * Event time of several streams on one topic: the least of the declared streams' last times.
 *
 * <p>A stream that is not heard yet, or pauses because the job before it moves, holds time back
 * until it has been silent for the idle limit (processing time, counted anew after a restore).
 *
 * <p>An end mark takes its stream out of the minimum. When every stream has ended, or is silent
 * past the limit while others ended, time goes to the end of the last ended window, so that windows
 * close. A detection after all have ended begins a new round: end marks and last times are
 * forgotten, but event time itself never goes back, so detections of a round that starts at earlier
 * times are late. So is a detection that only trails its stream's end mark.
 *
 * <p>A time further ahead of all times before than the limit on jumps does not move event time,
 * unless it is the {@value #JUMPS_BELIEVED}th of its stream in a row. The detection itself is
 * passed on: its result comes when time gets there.
 *
 * <p>Time is passed on in steps of one window; finer steps would cost a message each and change
 * nothing. Runs at parallelism 1. Last times, end marks and time itself are operator state; the
 * restored time is passed downstream ahead of the first record.
 */
final class StreamClock extends AbstractStreamOperator<Detection>
        implements OneInputStreamOperator<Detection, Detection> {
    private static final long serialVersionUID = 1L;
    private static final long NO_TIME = Long.MIN_VALUE; // as StreamTime.NOT_HEARD
    private static final int JUMPS_BELIEVED = 5;

    private final List<String> declared;
    private final long windowMs;
    private final long idleLimitMs;
    private final long maxJumpMs;

    private transient Map<String, DeclaredStream> streams;
    private transient ListState<StreamTime> savedStreams;
    private transient ListState<Long> savedTime;
    private transient Counter undeclared;
    private transient Counter jumps;
    private transient long time;
    private transient boolean announced;

    StreamClock(List<String> declared, long windowMs, long idleLimitMs, long maxJumpMs) {
        this.declared = List.copyOf(declared);
        this.windowMs = windowMs;
        this.idleLimitMs = idleLimitMs;
        this.maxJumpMs = maxJumpMs;
    }

    /** Puts a clock behind a stream of detections. */
    static SingleOutputStreamOperator<Detection> after(
            SingleOutputStreamOperator<Detection> detections,
            List<String> declared,
            long windowMs,
            long idleLimitMs,
            long maxJumpMs) {
        return detections
                .transform(
                        "stream-clock",
                        TypeInformation.of(Detection.class),
                        new StreamClock(declared, windowMs, idleLimitMs, maxJumpMs))
                .setParallelism(1)
                .uid("stream-clock")
                .name("stream-clock");
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        savedStreams =
                context.getOperatorStateStore()
                        .getListState(
                                new ListStateDescriptor<>(
                                        "streams", TypeInformation.of(StreamTime.class)));
        savedTime =
                context.getOperatorStateStore()
                        .getListState(new ListStateDescriptor<>("time", Types.LONG));
        streams = new LinkedHashMap<>();
        declared.forEach(name -> streams.put(name, new DeclaredStream(new StreamTime(name))));
        time = NO_TIME;
        if (context.isRestored()) {
            for (StreamTime saved : savedStreams.get()) {
                // a stream that is no longer declared is dropped
                streams.replace(saved.stream, new DeclaredStream(saved));
            }
            for (long saved : savedTime.get()) {
                time = Math.max(time, saved);
            }
        }
    }

    @Override
    public void open() throws Exception {
        super.open();
        undeclared = getMetricGroup().counter("undeclared");
        jumps = getMetricGroup().counter("jumps");
        getMetricGroup().gauge("eventTimeMs", () -> time);
        long now = processingTime();
        streams.values().forEach(stream -> stream.at = now);
        announced = time == NO_TIME;
        scheduleCheck(now + idleLimitMs);
    }

    @Override
    public void snapshotState(StateSnapshotContext context) throws Exception {
        super.snapshotState(context);
        savedStreams.update(streams.values().stream().map(stream -> stream.time).toList());
        savedTime.update(List.of(time));
    }

    @Override
    public void processElement(StreamRecord<Detection> element) {
        emitRestoredTime();
        Detection detection = element.getValue();
        DeclaredStream stream = streams.get(detection.stream);
        if (stream == null) {
            undeclared.inc();
        } else {
            if (!detection.end && allEnded()) {
                beginNewRound();
            }
            stream.at = processingTime();
            stream.time.ended |= detection.end;
            if (isCredible(stream, detection)) {
                stream.time.lastMs = Math.max(stream.time.lastMs, detection.timeMs);
            } else {
                jumps.inc();
            }
        }
        if (!detection.end) {
            output.collect(element.replace(detection, detection.timeMs));
        }
        advance();
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
        if (known == NO_TIME || detection.timeMs - maxJumpMs <= known) {
            stream.jumped = 0;
            return true;
        }
        if (!detection.end && ++stream.jumped >= JUMPS_BELIEVED) {
            stream.jumped = 0;
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

    private void beginNewRound() {
        for (DeclaredStream stream : streams.values()) {
            stream.time.ended = false;
            stream.time.lastMs = StreamTime.NOT_HEARD;
            stream.at = processingTime();
        }
    }

    /** Passes time on when the streams allow it. */
    private void advance() {
        long reached = findReachedTime();
        if (reached == StreamTime.NOT_HEARD) {
            return;
        }
        // a later detection may still have the very time reached, so that one is not over yet
        long step = Math.floorDiv(reached, windowMs) * windowMs - 1;
        if (step > time) {
            time = step;
            output.emitWatermark(new Watermark(time));
        }
    }

    /**
     * Returns the least last time of the streams that count; NOT_HEARD when one is still awaited.
     */
    private long findReachedTime() {
        long silentSince = processingTime() - idleLimitMs;
        long least = Long.MAX_VALUE;
        long lastEnded = StreamTime.NOT_HEARD;
        for (DeclaredStream stream : streams.values()) {
            if (stream.time.ended) {
                lastEnded = Math.max(lastEnded, stream.time.lastMs);
            } else if (stream.at > silentSince) {
                least = Math.min(least, stream.time.lastMs);
            }
        }
        if (least != Long.MAX_VALUE || lastEnded == StreamTime.NOT_HEARD) {
            return least == Long.MAX_VALUE ? StreamTime.NOT_HEARD : least;
        }
        return (Math.floorDiv(lastEnded, windowMs) + 1) * windowMs;
    }

    private void scheduleCheck(long when) {
        getProcessingTimeService()
                .registerTimer(
                        when,
                        timestamp -> {
                            emitRestoredTime();
                            advance();
                            long pause = Math.max(1, Math.min(1000, idleLimitMs / 4));
                            scheduleCheck(processingTime() + pause);
                        });
    }

    private void emitRestoredTime() {
        if (!announced) {
            announced = true;
            output.emitWatermark(new Watermark(time));
        }
    }

    private long processingTime() {
        return getProcessingTimeService().getCurrentProcessingTime();
    }

    @Override
    public void processWatermark(Watermark mark) {
        // the source knows no event time; the last mark of a drained job must close its windows
        if (mark.equals(Watermark.MAX_WATERMARK)) {
            output.emitWatermark(mark);
        }
    }

    @Override
    public void processWatermarkStatus(WatermarkStatus status) {
        // whether a stream is idle is judged here
    }

    /** A stream's time, and when (processing time) it was heard last. */
    private static final class DeclaredStream {
        final StreamTime time;
        long at;
        int jumped; // times in a row that were too far ahead

        DeclaredStream(StreamTime time) {
            this.time = time;
        }
    }
}
