package io.speck.mqtt.source;

import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.protocol.HandOver;
import io.speck.mqtt.protocol.Until;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Reads the messages of one topic, each acknowledged when a checkpoint that covers it is complete.
 * Runs at parallelism 1: a topic has one session.
 */
public final class MqttSource
        implements Source<byte[], TopicSplit, Boolean>, ResultTypeQueryable<byte[]> {
    private static final long serialVersionUID = 1L;

    private final LinkConfig link;
    private final HandOver handOver;
    private final Until until;

    /**
     * @param handOver what the previous reader of the link has taken
     * @param until the numbers up to which it is read
     */
    public MqttSource(LinkConfig link, HandOver handOver, Until until) {
        this.link = link;
        this.handOver = handOver;
        this.until = until;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<byte[], TopicSplit> createReader(SourceReaderContext context) {
        return new MqttSourceReader(link, handOver, until, context.metricGroup());
    }

    @Override
    public SplitEnumerator<TopicSplit, Boolean> createEnumerator(
            SplitEnumeratorContext<TopicSplit> context) {
        return new TopicEnumerator(context, false);
    }

    @Override
    public SplitEnumerator<TopicSplit, Boolean> restoreEnumerator(
            SplitEnumeratorContext<TopicSplit> context, Boolean assigned) {
        return new TopicEnumerator(context, assigned);
    }

    @Override
    public SimpleVersionedSerializer<TopicSplit> getSplitSerializer() {
        return new TopicSplit.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<Boolean> getEnumeratorCheckpointSerializer() {
        return new TopicEnumerator.Serializer();
    }

    @Override
    public TypeInformation<byte[]> getProducedType() {
        return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
    }
}
