package io.speck.jobs;

import io.speck.mqtt.SpeckJob;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;

/** Passes everything on unchanged: joins a site's streams to another broker. */
public final class Forward {
    private Forward() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters());
        job.sink(flow(job.source()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records) {
        return records.map(record -> record)
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("forward")
                .name("forward");
    }
}
