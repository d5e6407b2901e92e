package io.speck.jobs;

import java.util.List;
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
 * {@link EventTime} as watermarks. Silence is counted anew after a restore.
 *
 * <p>A detection whose time does not move event time is passed on, too: its result comes when time
 * gets there. Runs at parallelism 1. Last times, end marks and time itself are operator state; the
 * restored time is passed downstream ahead of the first record.
 */
final class StreamClock extends AbstractStreamOperator<Detection>
        implements OneInputStreamOperator<Detection, Detection> {
    private static final long serialVersionUID = 1L;

    private final Windows windows;

    private transient EventTime clock;
    private transient ListState<StreamTime> savedStreams;
    private transient ListState<Long> savedTime;
    private transient Counter undeclared;
    private transient Counter jumps;
    private transient boolean announced;

    StreamClock(Windows windows) {
        this.windows = windows;
    }

    /** Puts a clock behind a stream of detections. */
    static SingleOutputStreamOperator<Detection> after(
            SingleOutputStreamOperator<Detection> detections, Windows windows) {
        return detections
                .transform(
                        "stream-clock",
                        TypeInformation.of(Detection.class),
                        new StreamClock(windows))
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
        clock = new EventTime(windows, processingTime());
        if (context.isRestored()) {
            long time = EventTime.NO_TIME;
            for (long saved : savedTime.get()) {
                time = Math.max(time, saved);
            }
            clock.restore(savedStreams.get(), time);
        }
    }

    @Override
    public void open() throws Exception {
        super.open();
        undeclared = getMetricGroup().counter("undeclared");
        jumps = getMetricGroup().counter("jumps");
        getMetricGroup().gauge("eventTimeMs", () -> clock.time());
        announced = clock.time() == EventTime.NO_TIME;
        scheduleCheck(processingTime() + windows.idleLimitMs());
    }

    @Override
    public void snapshotState(StateSnapshotContext context) throws Exception {
        super.snapshotState(context);
        savedStreams.update(clock.streamTimes());
        savedTime.update(List.of(clock.time()));
    }

    @Override
    public void processElement(StreamRecord<Detection> element) {
        emitRestoredTime();
        Detection detection = element.getValue();
        switch (clock.hear(detection, processingTime())) {
            case UNDECLARED -> undeclared.inc();
            case JUMP -> jumps.inc();
            case DECLARED -> {}
        }
        if (!detection.end) {
            output.collect(element.replace(detection, detection.timeMs));
        }
        advance();
    }

    private void advance() {
        if (clock.advance(processingTime())) {
            output.emitWatermark(new Watermark(clock.time()));
        }
    }

    private void scheduleCheck(long when) {
        getProcessingTimeService()
                .registerTimer(
                        when,
                        timestamp -> {
                            emitRestoredTime();
                            advance();
                            long pause = Math.max(1, Math.min(1000, windows.idleLimitMs() / 4));
                            scheduleCheck(processingTime() + pause);
                        });
    }

    private void emitRestoredTime() {
        if (!announced) {
            announced = true;
            output.emitWatermark(new Watermark(clock.time()));
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
}
