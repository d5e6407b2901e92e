package io.speck.link.sink;

import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Opens the writer of a sink, which writes to the links of a port.
 *
 * <p>Under exactly_once {@link ExactlyOnceWriter} puts messages into checkpoints, and {@link
 * CommittablePublisher} publishes them. In the other delivery modes {@link PublishingWriter}
 * publishes at once, and the committables are only those that a checkpoint of an exactly-once run
 * has left.
 *
 * @param port the links; most sinks have one
 * @param attempt of the incarnation; newer ones have higher numbers
 * @param sinkKey names the job's sink in this JVM: under it the writer finds what its {@link
 *     CommittablePublisher} has published
 */
public record LinkWriters(
        List<LinkConfig> port, long attempt, SinkSettings settings, String sinkKey) {
    public LinkWriters {
        boolean keepsLogs = Transports.of(port.get(0).broker()).keepsLogs();
        settings = keepsLogs ? settings.withoutBatches() : settings;
    }

    /**
     * Opens a writer, and waits a while for its broker.
     *
     * @param chooser says to which link a record goes, where there are several
     * @param restored its state in the checkpoint from which the job goes on; empty: there is none
     * @param loop runs the writer
     */
    public LinkWriter open(
            LinkChooser chooser,
            Collection<SinkState> restored,
            TaskLoop loop,
            LinkMetrics metrics) {
        LinkMetrics ofLink = PortMetrics.of(metrics, port.size());
        List<LinkWriter> writers = new ArrayList<>();
        Set<Long> epochs = new HashSet<>();
        for (LinkConfig link : port) {
            writers.add(open(link, restored, epochs, loop, ofLink));
        }
        return writers.size() == 1 ? writers.get(0) : new PortWriter(writers, chooser);
    }

    private LinkWriter open(
            LinkConfig link,
            Collection<SinkState> restored,
            Set<Long> epochs,
            TaskLoop loop,
            LinkMetrics metrics) {
        String producer =
                port.size() == 1
                        ? Stamp.producerOfSink(link.clientId())
                        : Stamp.producerInPort(link.clientId());
        if (link.delivery() != Delivery.EXACTLY_ONCE) {
            List<NumberedMessages> recent =
                    restored.stream().flatMap(state -> state.recentOver(link).stream()).toList();
            ProducerEpoch epoch = ProducerEpoch.of(producer, chooseEpoch(restored, epochs));
            return new PublishingWriter(link, epoch, settings, loop, metrics, stateName(link))
                    .start(recent)
                    .awaitReady();
        }
        SinkState continued = findContinued(link, restored);
        long epoch = continued == null ? chooseEpoch(restored, epochs) : continued.epoch();
        epochs.add(epoch);
        return new ExactlyOnceWriter(
                        link,
                        ProducerEpoch.of(producer, epoch),
                        continued == null ? 0 : continued.number(),
                        settings,
                        ResendWindows.keyOf(sinkKey, link),
                        metrics,
                        stateName(link))
                .start();
    }

    /** Returns how the writer's state names the link: not at all where there is no other. */
    private String stateName(LinkConfig link) {
        return port.size() == 1 ? "" : link.clientId();
    }

    /**
     * Finds the state whose numbers go on over a link: of a port of several links that of the same
     * one, of a single link any, as long as only one link goes on with it.
     */
    private SinkState findContinued(LinkConfig link, Collection<SinkState> restored) {
        boolean isFirst = link.equals(port.get(0));
        return restored.stream()
                .filter(SinkState::exact)
                .filter(
                        state ->
                                state.clientId().isEmpty()
                                        ? isFirst
                                        : state.clientId().equals(link.clientId()))
                .findFirst()
                .orElse(null);
    }

    private long chooseEpoch(Collection<SinkState> restored, Set<Long> used) {
        long epoch;
        do {
            epoch = Epochs.choose(attempt, new SecureRandom(), restored);
        } while (!used.add(epoch));
        return epoch;
    }
}
