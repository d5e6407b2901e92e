package io.speck.jobs;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.util.Collector;

/** Reads detections from messages; counts and drops bad ones. Keeps the order (parallelism 1). */
final class ReadDetections extends RichFlatMapFunction<byte[], Detection> {
    private static final long serialVersionUID = 1L;
    private transient DetectionReader reader;
    private transient BadRecords bad;

    static SingleOutputStreamOperator<Detection> from(DataStream<byte[]> records) {
        return records.flatMap(new ReadDetections())
                .returns(TypeInformation.of(Detection.class))
                .setParallelism(1)
                .uid("read")
                .name("read");
    }

    @Override
    public void open(OpenContext context) {
        reader = new DetectionReader();
        bad = new BadRecords(getRuntimeContext().getMetricGroup());
    }

    @Override
    public void flatMap(byte[] record, Collector<Detection> out) {
        Detection detection = new Detection();
        if (bad.isGood(reader.read(record, detection))) {
            out.collect(detection);
        }
    }
}
