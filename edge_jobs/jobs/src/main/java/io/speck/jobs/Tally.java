package io.speck.jobs;

import io.speck.mqtt.SpeckJob;
import java.nio.charset.StandardCharsets;
import java.util.function.LongSupplier;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.util.Collector;

/**
 * Counts what {@link Feed} sends, four times a second into a record of its own: {@code {"at_ms",
 * "newest_ms", "records", "missing", "repeated", "bytes", "marks", "late": {"<ms>": <records>,
 * ...}}}, all from the beginning; and at each of Feed's two marks. {@code newest_ms}: when the last
 * one counted was made. {@code late}: by how many milliseconds of this machine's clock each was
 * late, {@value #MAX_LATE_MS} standing for all that is more. Missing and repeated go by the
 * records' own numbers. No arguments of its own.
 */
public final class Tally {
    private static final int MAX_LATE_MS = 10_000;

    private Tally() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters());
        job.sink(flow(job.source()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records) {
        return records.flatMap(new Counter(System::currentTimeMillis))
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("tally")
                .name("tally")
                .setParallelism(1);
    }

    /** A clock that is serialized with the job. */
    interface Clock extends LongSupplier, java.io.Serializable {}

    static final class Counter extends RichFlatMapFunction<byte[], byte[]> {
        private static final long serialVersionUID = 1L;
        private static final long EVERY_MS = 250;
        private static final int ID_AT = "{\"id\":".length();
        private static final int TIME_AFTER = ",\"time_ms\":".length();
        private static final int MARKED_ID_AT = "{\"end\":true,\"id\":".length();

        private final Clock clock;
        private transient int[] late;
        private transient long reportedMs;
        private transient long newest;
        private transient long records;
        private transient long highest;
        private transient long missing;
        private transient long repeated;
        private transient long bytes;
        private transient int marks;
        private transient int position; // in the record being read

        Counter(Clock clock) {
            this.clock = clock;
        }

        @Override
        public void open(OpenContext context) {
            late = new int[MAX_LATE_MS + 1];
            reportedMs = clock.getAsLong();
            newest = 0;
            records = 0;
            highest = 0;
            missing = 0;
            repeated = 0;
            bytes = 0;
            marks = 0;
        }

        @Override
        public void flatMap(byte[] record, Collector<byte[]> out) {
            long now = clock.getAsLong();
            if (record[2] == 'e') {
                position = MARKED_ID_AT + (record["{\"end\":".length()] == 'f' ? 1 : 0);
                long sent = readNumber(record);
                missing += sent - highest;
                highest = sent;
                marks++;
                out.collect(report(now));
                return;
            }
            position = ID_AT;
            long id = readNumber(record);
            position += TIME_AFTER;
            long time = readNumber(record);
            newest = time;
            records++;
            bytes += record.length;
            if (id > highest) {
                missing += id - highest - 1;
                highest = id;
            } else {
                repeated++;
            }
            late[(int) Math.max(0, Math.min(MAX_LATE_MS, now - time))]++;
            if (now - reportedMs >= EVERY_MS) {
                out.collect(report(now));
            }
        }

        /** Reads digits up to something else. */
        private long readNumber(byte[] record) {
            long value = 0;
            while (record[position] >= '0' && record[position] <= '9') {
                value = 10 * value + record[position++] - '0';
            }
            return value;
        }

        private byte[] report(long now) {
            reportedMs = now;
            StringBuilder json = new StringBuilder("{\"at_ms\":").append(now);
            json.append(",\"newest_ms\":").append(newest);
            json.append(",\"records\":").append(records);
            json.append(",\"missing\":").append(missing);
            json.append(",\"repeated\":").append(repeated);
            json.append(",\"bytes\":").append(bytes);
            json.append(",\"marks\":").append(marks).append(",\"late\":{");
            String comma = "";
            for (int ms = 0; ms <= MAX_LATE_MS; ms++) {
                if (late[ms] > 0) {
                    json.append(comma).append('"').append(ms).append("\":").append(late[ms]);
                    comma = ",";
                }
            }
            return json.append("}}").toString().getBytes(StandardCharsets.UTF_8);
        }
    }
}
