package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.util.Collector;

/**
 * Uses a given CPU time for each record and passes on a given share of the records.
 *
 * <p>{@code --cpu-us N}: microseconds of the task thread's CPU time for each record (0). When one
 * record costs too much, the next ones cost less; costs below 20 microseconds are added up until
 * they reach that. So the average stays right even near the cost of reading the clock.
 *
 * <p>{@code --work N}: steps of a fixed loop for each record (0), the same on every machine: the
 * time that they take shows how fast the machine is. Both may be given; the steps come first.
 *
 * <p>{@code --selectivity S}: records out for each record in (1): of n records floor(n S) are
 * passed on, evenly spread; over 1 it repeats records.
 */
public final class Burn {
    private Burn() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters(), "cpu-us", "work", "selectivity");
        job.sink(flow(job.source(), job.parameters()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records, Parameters parameters) {
        return records.flatMap(
                        new Burner(
                                parameters.getDouble("cpu-us", 0),
                                parameters.getLong("work", 0),
                                parameters.getDouble("selectivity", 1)))
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("burn")
                .name("burn");
    }

    static final class Burner extends RichFlatMapFunction<byte[], byte[]> {
        private static final long serialVersionUID = 1L;
        private static final int STEPS_PER_CLOCK_READING = 200;
        private static final double MIN_NANOS = 20_000;
        private static final double ROUNDING = 1e-9;
        private static final long MAX_STEPS = 1_000_000_000_000L;

        private final double nanosPerRecord;
        private final long stepsPerRecord;
        private final double selectivity;
        private transient ThreadMXBean threads;
        private transient double owedNanos;
        private transient double owedRecords;
        private transient long noise;

        Burner(double microsPerRecord, long stepsPerRecord, double selectivity) {
            if (!(microsPerRecord >= 0 && microsPerRecord <= 60e6)) {
                throw new IllegalArgumentException(
                        "cannot use --cpu-us \""
                                + microsPerRecord
                                + "\": it must be 0 to 60000000");
            }
            if (stepsPerRecord < 0 || stepsPerRecord > MAX_STEPS) {
                throw new IllegalArgumentException(
                        "cannot use --work \""
                                + stepsPerRecord
                                + "\": it must be 0 to "
                                + MAX_STEPS);
            }
            if (!(selectivity >= 0 && selectivity <= 1000)) {
                throw new IllegalArgumentException(
                        "cannot use --selectivity \"" + selectivity + "\": it must be 0 to 1000");
            }
            this.nanosPerRecord = microsPerRecord * 1000;
            this.stepsPerRecord = stepsPerRecord;
            this.selectivity = selectivity;
        }

        @Override
        public void open(OpenContext context) {
            threads = ManagementFactory.getThreadMXBean();
            owedNanos = 0;
            owedRecords = 0;
        }

        @Override
        public void flatMap(byte[] record, Collector<byte[]> out) {
            noise = work(noise, stepsPerRecord);
            owedNanos += nanosPerRecord;
            if (owedNanos >= MIN_NANOS) {
                owedNanos -= burn(owedNanos);
            }
            owedRecords += selectivity;
            while (owedRecords >= 1 - ROUNDING) {
                out.collect(record);
                owedRecords -= 1;
            }
        }

        /** Uses CPU time of this thread; returns how much it was, in nanoseconds. */
        private double burn(double nanos) {
            long start = threads.getCurrentThreadCpuTime();
            long used;
            do {
                noise = work(noise, STEPS_PER_CLOCK_READING);
                used = threads.getCurrentThreadCpuTime() - start;
            } while (used < nanos);
            return used;
        }

        /** Does so many steps, each of which needs the one before; returns the last value. */
        static long work(long from, long steps) {
            long value = from;
            for (long i = 0; i < steps; i++) {
                value = value * 6364136223846793005L + 1442695040888963407L;
            }
            return value;
        }

        /** Returns the last value: without a use of it the compiler could leave the loop out. */
        long noise() {
            return noise;
        }
    }
}
