package io.speck.jobs;

import io.speck.mqtt.SpeckJob;
import java.io.IOException;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts the records of each key, as state, and writes the count into the record. Whoever reads the
 * output sees whether any state was lost, or any record counted twice.
 *
 * <p>A record is a JSON object; its field {@code k} is the key (absent: the empty one), and {@code
 * count} is added, from 1. What is no JSON object is dropped. No arguments of its own.
 */
public final class Counting {
    private Counting() {}

    public static void main(String[] args) throws Exception {
        SpeckJob job = SpeckJob.from(args);
        Arguments.logUnknown(job.parameters());
        job.sink(flow(job.source()));
        job.execute();
    }

    static DataStream<byte[]> flow(DataStream<byte[]> records) {
        return records.keyBy(Counting::keyOf, Types.STRING)
                .process(new Counter())
                .returns(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                .uid("counting")
                .name("counting");
    }

    private static final ObjectMapper MAPPER = new ObjectMapper();

    static String keyOf(byte[] record) {
        ObjectNode object = parseObject(record);
        return object == null ? "" : object.path("k").asText();
    }

    /** Returns null when the record is no JSON object. */
    private static ObjectNode parseObject(byte[] record) {
        try {
            JsonNode node = MAPPER.readTree(record);
            return node instanceof ObjectNode object ? object : null;
        } catch (JsonProcessingException e) {
            return null;
        } catch (IOException e) {
            throw new IllegalStateException("cannot read a record from memory", e);
        }
    }

    static final class Counter extends KeyedProcessFunction<String, byte[], byte[]> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(byte[] record, Context context, Collector<byte[]> out)
                throws Exception {
            ObjectNode object = parseObject(record);
            if (object == null) {
                return;
            }
            Long before = count.value();
            long now = before == null ? 1 : before + 1;
            count.update(now);
            out.collect(MAPPER.writeValueAsBytes(object.put("count", now)));
        }
    }
}
