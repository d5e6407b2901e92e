package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.metrics.Counter;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Statistics over all sites for each window of event time: count, mean speed, counts of each site
 * and of each type of vehicle.
 *
 * <p>Arguments: those of {@link Windows}. A detection (stream and id) counts once in its window,
 * however often it comes; repeats are counted in {@code repeats}. A new one that comes after its
 * window's result was emitted gives the whole result again with the next revision; after {@code
 * --lateness} it is dropped and counted in {@code late_dropped}.
 */
public final class Merge {
    private Merge() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters(), Windows.ARGUMENTS);
        job.sink(flow(job.source(), job.parameters()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records, Parameters parameters) {
        Windows windows = Windows.from(parameters);
        return StreamClock.after(ReadDetections.from(records), windows)
                .keyBy(detection -> windows.startOf(detection.timeMs), Types.LONG)
                .process(new GlobalWindow(windows))
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("global-windows")
                .name("global-windows");
    }

    /** One window over all sites; the key is its start. */
    static final class GlobalWindow extends KeyedProcessFunction<Long, Detection, byte[]> {
        private static final long serialVersionUID = 1L;
        private final Windows windows;
        private transient ValueState<Totals> totals;
        private transient MapState<String, Long> sites;
        private transient MapState<String, Long> types;
        private transient MapState<String, IdRanges> ids;
        transient Counter repeats;
        transient Counter lateDropped;
        transient Counter corrections;

        GlobalWindow(Windows windows) {
            this.windows = windows;
        }

        @Override
        public void open(OpenContext context) {
            totals =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>(
                                            "totals", TypeInformation.of(Totals.class)));
            sites = getCounts("sites");
            types = getCounts("types");
            ids =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>(
                                            "ids",
                                            Types.STRING,
                                            TypeInformation.of(IdRanges.class)));
            repeats = getRuntimeContext().getMetricGroup().counter("repeats");
            lateDropped = getRuntimeContext().getMetricGroup().counter("late_dropped");
            corrections = getRuntimeContext().getMetricGroup().counter("corrections");
        }

        private MapState<String, Long> getCounts(String name) {
            return getRuntimeContext()
                    .getMapState(new MapStateDescriptor<>(name, Types.STRING, Types.LONG));
        }

        @Override
        public void processElement(Detection detection, Context context, Collector<byte[]> out)
                throws Exception {
            long start = context.getCurrentKey();
            long time = context.timerService().currentWatermark();
            if (windows.forgottenAt(start) <= time) {
                lateDropped.inc();
                return;
            }
            if (!isNew(detection)) {
                repeats.inc();
                return;
            }
            Totals window = totals.value();
            if (window == null) {
                window = new Totals();
                context.timerService().registerEventTimeTimer(windows.forgottenAt(start));
                context.timerService().registerEventTimeTimer(windows.dueAt(start));
            }
            window.add(detection);
            increment(sites, Detection.siteOf(detection.stream));
            increment(types, detection.type);
            if (windows.dueAt(start) <= time) {
                emit(start, window, out);
            }
            totals.update(window);
        }

        private boolean isNew(Detection detection) throws Exception {
            IdRanges seen = ids.get(detection.stream);
            if (seen == null) {
                seen = new IdRanges();
            }
            boolean isNew = seen.add(detection.id);
            ids.put(detection.stream, seen);
            return isNew;
        }

        private static void increment(MapState<String, Long> counts, String name)
                throws Exception {
            Long count = counts.get(name);
            counts.put(name, count == null ? 1 : count + 1);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<byte[]> out)
                throws Exception {
            long start = context.getCurrentKey();
            Totals window = totals.value();
            if (window != null
                    && timestamp == windows.dueAt(start)
                    && window.revision == Totals.NOT_EMITTED) {
                emit(start, window, out);
                totals.update(window);
            }
            if (timestamp == windows.forgottenAt(start)) {
                totals.clear();
                sites.clear();
                types.clear();
                ids.clear();
            }
        }

        private void emit(long start, Totals window, Collector<byte[]> out) throws Exception {
            window.revision++;
            if (window.revision > 0) {
                corrections.inc();
            }
            out.collect(Results.ofAllSites(start, windows, window, sort(sites), sort(types)));
        }

        private static SortedMap<String, Long> sort(MapState<String, Long> counts)
                throws Exception {
            SortedMap<String, Long> ordered = new TreeMap<>();
            for (Map.Entry<String, Long> entry : counts.entries()) {
                ordered.put(entry.getKey(), entry.getValue());
            }
            return ordered;
        }
    }
}
