package io.speck.flink.sink;

import io.speck.flink.metrics.FlinkMetrics;
import io.speck.flink.metrics.TaskCpuTime;
import io.speck.link.sink.Committable;
import io.speck.link.sink.CommittablePublisher;
import io.speck.link.sink.LinkChooser;
import io.speck.link.sink.LinkWriters;
import io.speck.link.sink.SinkSettings;
import io.speck.link.sink.SinkState;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.InitContext;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** Publishes each record to one of the links of a port; most have one. Runs at parallelism 1. */
public final class LinkSink
        implements Sink<byte[]>,
                SupportsWriterState<byte[], SinkState>,
                SupportsCommitter<Committable> {
    private static final long serialVersionUID = 1L;

    private final ArrayList<LinkConfig> port;
    private final LinkChooser chooser;
    private final long attempt;
    private final SinkSettings settings;
    private final boolean resendsOnly;

    /**
     * @param chooser says to which link a record goes, where there are several
     * @param attempt of the incarnation; newer ones have higher numbers
     */
    public LinkSink(
            List<LinkConfig> port, LinkChooser chooser, long attempt, SinkSettings settings) {
        this(port, chooser, attempt, settings, false);
    }

    private LinkSink(
            List<LinkConfig> port,
            LinkChooser chooser,
            long attempt,
            SinkSettings settings,
            boolean resendsOnly) {
        this.port = new ArrayList<>(port);
        this.chooser = chooser;
        this.attempt = attempt;
        this.settings = settings;
        this.resendsOnly = resendsOnly;
    }

    /**
     * Returns a sink that gets no records: it sends what a restored state holds and the broker does
     * not have, and its input's end waits until the broker has taken all of it.
     */
    public static LinkSink resending(List<LinkConfig> port, long attempt, SinkSettings settings) {
        return new LinkSink(port, LinkChooser.inTurn(), attempt, settings, true);
    }

    @Override
    public SinkWriter<byte[]> createWriter(WriterInitContext context) {
        return restoreWriter(context, List.of());
    }

    @Override
    public StatefulSinkWriter<byte[], SinkState> restoreWriter(
            WriterInitContext context, Collection<SinkState> restored) {
        if (port.get(0).delivery() != Delivery.EXACTLY_ONCE) {
            TaskCpuTime.register(context.metricGroup());
        }
        LinkWriters writers = new LinkWriters(port, attempt, settings, sinkKey(context));
        return new LinkSinkWriter(
                writers.open(
                        chooser,
                        restored,
                        FlinkTaskLoop.of(context),
                        FlinkMetrics.of(context.metricGroup())));
    }

    /** In all delivery modes, so that a change of the mode finds the same operators. */
    @Override
    public Committer<Committable> createCommitter(CommitterInitContext context) {
        return new LinkCommitter(
                new CommittablePublisher(
                        port,
                        settings,
                        sinkKey(context),
                        resendsOnly,
                        FlinkMetrics.of(context.metricGroup())));
    }

    /** Returns the name of this sink of the job in this JVM: writer and committer are a chain. */
    private String sinkKey(InitContext context) {
        return context.getJobInfo().getJobId() + "/" + port.get(0).clientId();
    }

    @Override
    public SimpleVersionedSerializer<Committable> getCommittableSerializer() {
        return new FlinkSerializer<>(new Committable.Serializer());
    }

    @Override
    public SimpleVersionedSerializer<SinkState> getWriterStateSerializer() {
        return new FlinkSerializer<>(new SinkState.Serializer(port.size()));
    }
}
