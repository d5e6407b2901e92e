package io.speck.jobs;

import io.speck.mqtt.SpeckJob;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.util.Collector;

/**
 * Drops malformed and impossible detections, and counts them in the metrics {@code malformed} and
 * {@code impossible}; passes everything else on unchanged, end marks too. No arguments of its own.
 */
public final class Clean {
    private Clean() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters());
        job.sink(flow(job.source()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records) {
        return records.flatMap(new Filter())
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("clean")
                .name("clean");
    }

    static final class Filter extends RichFlatMapFunction<byte[], byte[]> {
        private static final long serialVersionUID = 1L;
        private transient DetectionReader reader;
        private transient Detection detection;
        private transient BadRecords bad;

        @Override
        public void open(OpenContext context) {
            reader = new DetectionReader();
            detection = new Detection();
            bad = new BadRecords(getRuntimeContext().getMetricGroup());
        }

        @Override
        public void flatMap(byte[] record, Collector<byte[]> out) {
            if (bad.isGood(reader.read(record, detection))) {
                out.collect(record);
            }
        }
    }
}
