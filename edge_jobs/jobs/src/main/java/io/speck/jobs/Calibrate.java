package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * Measures how fast its site is. It feeds itself: its links carry nothing.
 *
 * <p>A unit is {@code --work N} steps of Burn's loop (200000). After {@code --warm-up TIME} (2s)
 * the first subtask alone does units with pauses nine times as long between them, for {@code
 * --light TIME} (4s): the CPU time of its thread gives the cost of a unit. Then all subtasks do
 * units without a pause for {@code --full TIME} (10s), and count those of the middle eight tenths
 * of that time: subtasks begin at slightly different moments. In the end the job rests until it is
 * removed.
 *
 * <p>Counters of the operator {@code calibrate}: {@code lightUnits}, {@code lightCpuNanos}, {@code
 * lightNanos} (wall time within units); {@code fullUnits}, {@code fullCpuNanos}, {@code fullNanos}
 * (wall time, of each subtask); {@code done}, 1 for each subtask that has ended and reported its
 * counters.
 */
public final class Calibrate {
    private Calibrate() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Parameters parameters = job.parameters();
        Arguments.logUnknown(parameters, "work", "warm-up", "light", "full");
        DataStream<Long> ticks =
                job.environment()
                        .fromSource(
                                new NumberSequenceSource(0, Long.MAX_VALUE),
                                WatermarkStrategy.noWatermarks(),
                                "ticks")
                        .uid("ticks");
        ticks.filter(new Meter(parameters))
                .uid("calibrate")
                .name("calibrate")
                .sinkTo(new DiscardingSink<>())
                .uid("nothing")
                .name("nothing");
        job.execute();
    }

    /** Works once for each record, as its part of the time demands; passes none on. */
    static final class Meter extends RichFilterFunction<Long> {
        private static final long serialVersionUID = 1L;
        private static final int PAUSE = 9;
        private static final long REST_MS = 20;

        private final long steps;
        private final long lightFrom;
        private final long fullFrom;
        private final long countFrom;
        private final long countTo;
        private final long end;
        private transient ThreadMXBean threads;
        transient Part light;
        transient Part full;
        private transient Counter done;
        private transient boolean first;
        private transient long startNanos;
        private transient long noise;

        Meter(Parameters parameters) {
            steps = parameters.getLong("work", 200_000);
            lightFrom = getNanos(parameters, "warm-up", 2);
            fullFrom = lightFrom + getNanos(parameters, "light", 4);
            long length = getNanos(parameters, "full", 10);
            countFrom = fullFrom + length / 10;
            countTo = fullFrom + length * 9 / 10;
            end = fullFrom + length;
            if (steps < 1) {
                throw new IllegalArgumentException(
                        "cannot use --work \"" + steps + "\": it must be at least 1");
            }
        }

        private static long getNanos(Parameters parameters, String name, long seconds) {
            Duration otherwise = Duration.ofSeconds(seconds);
            return parameters.getPositiveMillis(name, otherwise) * 1_000_000;
        }

        @Override
        public void open(OpenContext context) {
            threads = ManagementFactory.getThreadMXBean();
            MetricGroup group = getRuntimeContext().getMetricGroup();
            light = new Part(group, "light");
            full = new Part(group, "full");
            done = group.counter("done");
            first = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0;
            startNanos = 0;
        }

        @Override
        public boolean filter(Long tick) throws InterruptedException {
            long now = System.nanoTime();
            if (startNanos == 0) {
                startNanos = now;
            }
            long elapsed = now - startNanos;
            if (elapsed < fullFrom) {
                workLightly(elapsed >= lightFrom);
            } else if (elapsed < end) {
                if (elapsed >= countTo) {
                    full.report();
                }
                doUnit(elapsed >= countFrom && elapsed < countTo ? full : null);
            } else {
                if (done.getCount() == 0) {
                    full.report();
                    done.inc();
                }
                Thread.sleep(REST_MS);
            }
            return false;
        }

        private void workLightly(boolean counted) throws InterruptedException {
            if (!first) {
                Thread.sleep(REST_MS);
                return;
            }
            long nanos = doUnit(counted ? light : null) * PAUSE;
            light.report();
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        }

        /** Does one unit; returns its wall time in nanoseconds. */
        private long doUnit(Part part) {
            long start = System.nanoTime();
            long cpu = threads.getCurrentThreadCpuTime();
            noise = Burn.Burner.work(noise, steps);
            cpu = threads.getCurrentThreadCpuTime() - cpu;
            long nanos = System.nanoTime() - start;
            if (part != null) {
                part.units++;
                part.cpuNanos += cpu;
                part.nanos += nanos;
            }
            return nanos;
        }

        /**
         * Whether all is reported; the use of the result keeps the compiler from leaving work out.
         */
        boolean isDone() {
            return done.getCount() == 1 && noise != 0;
        }
    }

    /** The counts of one part of the time. */
    static final class Part {
        private final Counter reportedUnits;
        private final Counter reportedCpuNanos;
        private final Counter reportedNanos;
        long units;
        long cpuNanos;
        long nanos;

        Part(MetricGroup group, String name) {
            reportedUnits = group.counter(name + "Units");
            reportedCpuNanos = group.counter(name + "CpuNanos");
            reportedNanos = group.counter(name + "Nanos");
        }

        void report() {
            reportedUnits.inc(units - reportedUnits.getCount());
            reportedCpuNanos.inc(cpuNanos - reportedCpuNanos.getCount());
            reportedNanos.inc(nanos - reportedNanos.getCount());
        }
    }
}
