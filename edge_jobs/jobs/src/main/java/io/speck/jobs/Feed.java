package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.LongSupplier;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.util.Collector;

/**
 * Generates records, for experiments on links, which must not be held up by what feeds them. It
 * reads nothing. {@link Tally} counts at the other end.
 *
 * <p>Record n is {@code {"id":n,"time_ms":<now>} and then a line of {@code --records FILE}, the
 * first again after the last; the lines begin with a comma and end the object.
 *
 * <p>As fast as its sink takes them, but no more than {@code --most N} (10000000) a second, for
 * {@code --full TIME} (5s), then a mark, {@code {"end":false,"id":<how many>}}, and nothing for
 * {@code --pause TIME} (1s), then {@code --rate N} (1000) a second for {@code --rated TIME} (5s),
 * then an end mark, {@code {"end":true,"id":<how many>}}, and nothing more.
 */
public final class Feed {
    private Feed() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Parameters parameters = job.parameters();
        Arguments.logUnknown(parameters, "records", "full", "most", "pause", "rated", "rate");
        job.sink(
                job.environment()
                        .fromSource(
                                new NumberSequenceSource(0, Long.MAX_VALUE),
                                WatermarkStrategy.noWatermarks(),
                                "ticks")
                        .uid("ticks")
                        .setParallelism(1)
                        .flatMap(new Maker(parameters, System::nanoTime))
                        .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                        .uid("feed")
                        .name("feed")
                        .setParallelism(1));
        job.execute();
    }

    /** A clock that is serialized with the job. */
    interface Clock extends LongSupplier, java.io.Serializable {}

    /** Generates one record for each tick that is due. */
    static final class Maker extends RichFlatMapFunction<Long, byte[]> {
        private static final long serialVersionUID = 1L;

        private final String file;
        private final Clock nanos;
        private final long fullEnd;
        private final long ratedFrom;
        private final long ratedEnd;
        private final long rate;
        private final long most;
        private transient byte[][] lines;
        private transient long startNanos;
        private transient long made;
        private transient long madeBefore; // at the beginning of the rated part
        private transient double allowed; // records of the full part
        private transient long allowedAt; // when that was so
        private transient boolean paused;
        private transient boolean ended;

        Maker(Parameters parameters, Clock nanos) {
            this.file = parameters.get("records");
            this.nanos = nanos;
            fullEnd = getNanos(parameters, "full", 5);
            ratedFrom = fullEnd + getNanos(parameters, "pause", 1);
            ratedEnd = ratedFrom + getNanos(parameters, "rated", 5);
            most = parameters.getLong("most", 10_000_000);
            rate = parameters.getLong("rate", 1000);
            if (rate < 1) {
                throw new IllegalArgumentException(
                        "cannot use --rate " + rate + ": it must be at least 1");
            }
        }

        private static long getNanos(Parameters parameters, String name, long seconds) {
            Duration otherwise = Duration.ofSeconds(seconds);
            return parameters.getPositiveMillis(name, otherwise) * 1_000_000;
        }

        @Override
        public void open(OpenContext context) throws IOException {
            lines =
                    Files.readAllLines(Path.of(file)).stream()
                            .map(line -> line.getBytes(StandardCharsets.UTF_8))
                            .toArray(byte[][]::new);
            startNanos = 0;
            made = 0;
            madeBefore = -1;
            allowed = 1 + most / 10.0;
            allowedAt = 0;
            paused = false;
            ended = false;
        }

        @Override
        public void flatMap(Long tick, Collector<byte[]> out) throws InterruptedException {
            long now = nanos.getAsLong();
            if (startNanos == 0) {
                startNanos = now;
            }
            long elapsed = now - startNanos;
            if (isDue(elapsed)) {
                out.collect(nextRecord());
            } else if (elapsed >= fullEnd && !paused) {
                paused = true;
                out.collect(encode("{\"end\":false,\"id\":" + made + "}"));
            } else if (elapsed >= ratedEnd && !ended) {
                ended = true;
                out.collect(encode("{\"end\":true,\"id\":" + made + "}"));
            } else {
                Thread.sleep(1); // no longer: the sink's timers need this thread
            }
        }

        private boolean isDue(long elapsed) {
            if (elapsed < fullEnd) { // what was not taken in time is not made up for
                allowed = Math.min(allowed + (elapsed - allowedAt) * (most / 1e9), 1 + most / 10.0);
                allowedAt = elapsed;
                boolean due = allowed >= 1;
                allowed -= due ? 1 : 0;
                return due;
            }
            if (elapsed < ratedFrom || elapsed >= ratedEnd) {
                return false;
            }
            if (madeBefore < 0) {
                madeBefore = made;
            }
            return (made - madeBefore) * 1e9 < (double) (elapsed - ratedFrom) * rate;
        }

        private byte[] nextRecord() {
            byte[] rest = lines[(int) (made % lines.length)];
            made++;
            byte[] head = encode("{\"id\":" + made + ",\"time_ms\":" + System.currentTimeMillis());
            byte[] record = new byte[head.length + rest.length];
            System.arraycopy(head, 0, record, 0, head.length);
            System.arraycopy(rest, 0, record, head.length, rest.length);
            return record;
        }

        private static byte[] encode(String text) {
            return text.getBytes(StandardCharsets.ISO_8859_1); // the quickest
        }
    }
}
