import io.speck.mqtt.SpeckJob;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Keeps {@code --bytes} of state for each of {@code --keys} keys, by the number in each record, and
 * passes on one record of 100.
 */
public final class Hoard {
    private Hoard() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        long keys = job.parameters().getLong("keys");
        int bytes = (int) job.parameters().getLong("bytes");
        job.sink(
                job.source()
                        .keyBy(record -> number(record) % keys)
                        .process(new Keep(bytes))
                        .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                        .uid("keep")
                        .name("keep"));
        job.execute();
    }

    private static long number(byte[] record) {
        return Long.parseLong(
                new String(record, StandardCharsets.UTF_8).replaceAll("[^0-9]", ""));
    }

    private static final class Keep extends KeyedProcessFunction<Long, byte[], byte[]> {
        private final int bytes;
        private transient ValueState<byte[]> kept;

        Keep(int bytes) {
            this.bytes = bytes;
        }

        @Override
        public void open(OpenContext context) {
            kept =
                    getRuntimeContext()
                            .getState(new ValueStateDescriptor<>("kept", byte[].class));
        }

        @Override
        public void processElement(byte[] record, Context context, Collector<byte[]> out)
                throws Exception {
            byte[] before = kept.value();
            kept.update(before == null ? new byte[bytes] : before);
            long until = System.nanoTime() + 1_000_000;
            while (System.nanoTime() < until) {
                Thread.onSpinWait(); // a cost that is evidence
            }
            if (number(record) % 100 == 0) {
                out.collect(record);
            }
        }
    }
}
