package io.speck.link.sink;

import io.speck.link.metrics.LinkMetrics;
import io.speck.link.transport.LinkConfig;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * Publishes what a complete checkpoint holds for the links of a port.
 *
 * <p>A commit returns when the broker has taken everything; while the broker is away it waits.
 * Committed again after a failure, the same messages go out under the same numbers.
 *
 * <p>Committables restored from a checkpoint may be for a link that was the sink's before. They go
 * there first, over a connection of their own that is closed before the next one is opened: both
 * may have the same client id. In the other delivery modes, where the writer has the sink's
 * connections, this is all there is to do.
 */
public final class CommittablePublisher implements AutoCloseable {
    private final List<LinkPublisher> links = new ArrayList<>();

    /**
     * @param sinkKey under which the writer finds what was published, see {@link LinkWriters}
     * @param awaitsResend whether a commit also waits until the broker has what was published
     *     before the job was restored
     * @param metrics publishers send at the same time, each in a thread of its own: they count bytes
     *     together
     */
    public CommittablePublisher(
            List<LinkConfig> port,
            SinkSettings settings,
            String sinkKey,
            boolean awaitsResend,
            LinkMetrics metrics) {
        LinkMetrics ofLink = PortMetrics.of(metrics, port.size());
        for (LinkConfig link : port) {
            String windowKey = ResendWindows.keyOf(sinkKey, link);
            links.add(new LinkPublisher(link, settings, windowKey, awaitsResend, ofLink));
        }
    }

    /**
     * Publishes what a checkpoint holds, which is complete; returns when the broker has it.
     *
     * @param committables of each link in the order in which they were made
     */
    public void commit(Collection<Committable> committables) throws InterruptedException {
        Map<LinkPublisher, List<Committable>> own = new LinkedHashMap<>();
        List<Committable> former = new ArrayList<>();
        for (Committable committable : committables) {
            LinkPublisher publisher = find(committable);
            if (publisher == null) {
                former.add(committable);
            } else {
                own.computeIfAbsent(publisher, link -> new ArrayList<>()).add(committable);
            }
        }
        links.get(0).publishElsewhere(former);
        List<CompletableFuture<Void>> published = new ArrayList<>();
        for (Map.Entry<LinkPublisher, List<Committable>> each : own.entrySet()) {
            published.add(each.getKey().begin(each.getValue()));
        }
        for (CompletableFuture<Void> each : published) {
            LinkPublisher.await(each);
        }
    }

    /** Returns the publisher of the link; null: the port has it no more. */
    private LinkPublisher find(Committable committable) {
        return links.stream().filter(link -> link.isFor(committable)).findFirst().orElse(null);
    }

    @Override
    public void close() {
        links.forEach(LinkPublisher::close);
    }
}
