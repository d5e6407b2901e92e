package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.metrics.Counter;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Count, mean speed and occupancy of each sensor in each window of event time.
 *
 * <p>Arguments: {@code --site A} (the name in the results; otherwise the first letter of the first
 * stream) and those of {@link Windows}. A detection that comes after its window's result was
 * emitted gives the whole result again with the next revision; after {@code --lateness} it is
 * dropped and counted in {@code late_dropped}.
 */
public final class LocalStats {
    private LocalStats() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters(), Windows.ARGUMENTS);
        job.sink(flow(job.source(), job.parameters()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records, Parameters parameters) {
        Windows windows = Windows.from(parameters);
        String site = parameters.get("site", Detection.siteOf(windows.streams().get(0)));
        return StreamClock.after(ReadDetections.from(records), windows)
                .keyBy(detection -> detection.sensor, Types.STRING)
                .process(new SensorWindows(windows, site))
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("sensor-windows")
                .name("sensor-windows");
    }

    /** The windows of one sensor. */
    static final class SensorWindows extends KeyedProcessFunction<String, Detection, byte[]> {
        private static final long serialVersionUID = 1L;
        private final Windows windows;
        private final String site;
        private transient MapState<Long, Totals> totals;
        transient Counter lateDropped;
        transient Counter corrections;

        SensorWindows(Windows windows, String site) {
            this.windows = windows;
            this.site = site;
        }

        @Override
        public void open(OpenContext context) {
            totals =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>(
                                            "totals",
                                            Types.LONG,
                                            TypeInformation.of(Totals.class)));
            lateDropped = getRuntimeContext().getMetricGroup().counter("late_dropped");
            corrections = getRuntimeContext().getMetricGroup().counter("corrections");
        }

        @Override
        public void processElement(Detection detection, Context context, Collector<byte[]> out)
                throws Exception {
            long start = windows.startOf(detection.timeMs);
            long time = context.timerService().currentWatermark();
            if (windows.forgottenAt(start) <= time) {
                lateDropped.inc();
                return;
            }
            Totals window = totals.get(start);
            if (window == null) {
                window = new Totals();
                context.timerService().registerEventTimeTimer(windows.forgottenAt(start));
            }
            window.add(detection);
            if (windows.dueAt(start) <= time) {
                emit(context.getCurrentKey(), start, window, out);
            } else if (window.count == 1) {
                context.timerService().registerEventTimeTimer(windows.dueAt(start));
            }
            totals.put(start, window);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<byte[]> out)
                throws Exception {
            long dueStart = windows.startOf(timestamp);
            Totals due = totals.get(dueStart);
            if (due != null
                    && timestamp == windows.dueAt(dueStart)
                    && due.revision == Totals.NOT_EMITTED) {
                emit(context.getCurrentKey(), dueStart, due, out);
                totals.put(dueStart, due);
            }
            // the start of the window that is to be forgotten now, if there is one
            totals.remove(timestamp - windows.latenessMs() - windows.lengthMs() + 1);
        }

        private void emit(String sensor, long start, Totals window, Collector<byte[]> out)
                throws Exception {
            window.revision++;
            if (window.revision > 0) {
                corrections.inc();
            }
            out.collect(Results.ofSensor(site, sensor, start, windows, window));
        }
    }
}
