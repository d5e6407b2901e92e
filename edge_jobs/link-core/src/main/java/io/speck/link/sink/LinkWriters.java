package io.speck.link.sink;

import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.security.SecureRandom;
import java.util.Collection;
import java.util.List;

/**
 * Opens the writer of a sink.
 *
 * <p>Under exactly_once {@link ExactlyOnceWriter} puts messages into checkpoints, and {@link
 * CommittablePublisher} publishes them. In the other delivery modes {@link PublishingWriter}
 * publishes at once, and the committables are only those that a checkpoint of an exactly-once run
 * has left.
 *
 * @param attempt of the incarnation; newer ones have higher numbers
 * @param windowKey names the job's sink in this JVM: under it the writer finds what its {@link
 *     CommittablePublisher} has published
 */
public record LinkWriters(LinkConfig link, long attempt, SinkSettings settings, String windowKey) {
    /**
     * Opens a writer, and waits a while for its broker.
     *
     * @param restored its state in the checkpoint from which the job goes on; empty: there is none
     * @param loop runs the writer
     */
    public LinkWriter open(Collection<SinkState> restored, TaskLoop loop, LinkMetrics metrics) {
        String producer = Stamp.producerOf(link.clientId().replaceFirst("-out$", ""));
        if (link.delivery() == Delivery.EXACTLY_ONCE) {
            return openExact(producer, restored, metrics);
        }
        List<NumberedMessages> recent =
                restored.stream().flatMap(state -> state.recentOver(link).stream()).toList();
        return new PublishingWriter(link, chooseEpoch(producer, restored), settings, loop, metrics)
                .start(recent)
                .awaitReady();
    }

    private LinkWriter openExact(
            String producer, Collection<SinkState> restored, LinkMetrics metrics) {
        SinkState continued = restored.stream().filter(SinkState::exact).findFirst().orElse(null);
        ProducerEpoch epoch =
                continued == null
                        ? chooseEpoch(producer, restored)
                        : ProducerEpoch.of(producer, continued.epoch());
        long number = continued == null ? 0 : continued.number();
        return new ExactlyOnceWriter(link, epoch, number, settings, windowKey, metrics).start();
    }

    private ProducerEpoch chooseEpoch(String producer, Collection<SinkState> restored) {
        return ProducerEpoch.of(producer, Epochs.choose(attempt, new SecureRandom(), restored));
    }
}
