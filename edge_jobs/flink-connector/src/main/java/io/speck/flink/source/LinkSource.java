package io.speck.flink.source;

import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.Until;
import io.speck.link.source.LinkReader;
import io.speck.link.transport.LinkConfig;
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
 * Reads the messages of one link, each acknowledged when a checkpoint that covers it is complete.
 * Runs at parallelism 1: a link has one session.
 */
public final class LinkSource
        implements Source<byte[], LinkSplit, Boolean>, ResultTypeQueryable<byte[]> {
    private static final long serialVersionUID = 1L;

    private final LinkConfig link;
    private final HandOver handOver;
    private final Until until;

    /**
     * @param handOver what the previous reader of the link has taken
     * @param until the numbers up to which it is read
     */
    public LinkSource(LinkConfig link, HandOver handOver, Until until) {
        this.link = link;
        this.handOver = handOver;
        this.until = until;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<byte[], LinkSplit> createReader(SourceReaderContext context) {
        return new LinkSourceReader(
                metrics -> new LinkReader(link, handOver, until, metrics), context.metricGroup());
    }

    @Override
    public SplitEnumerator<LinkSplit, Boolean> createEnumerator(
            SplitEnumeratorContext<LinkSplit> context) {
        return new LinkEnumerator(context, false);
    }

    @Override
    public SplitEnumerator<LinkSplit, Boolean> restoreEnumerator(
            SplitEnumeratorContext<LinkSplit> context, Boolean assigned) {
        return new LinkEnumerator(context, assigned);
    }

    @Override
    public SimpleVersionedSerializer<LinkSplit> getSplitSerializer() {
        return new LinkSplit.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<Boolean> getEnumeratorCheckpointSerializer() {
        return new LinkEnumerator.Serializer();
    }

    @Override
    public TypeInformation<byte[]> getProducedType() {
        return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
    }
}
