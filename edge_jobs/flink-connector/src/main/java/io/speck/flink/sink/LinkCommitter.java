package io.speck.flink.sink;

import io.speck.link.sink.Committable;
import io.speck.link.sink.CommittablePublisher;
import java.util.Collection;
import org.apache.flink.api.connector.sink2.Committer;

/**
 * Publishes what a complete checkpoint holds. While the broker is away it waits, and with it the
 * task: Flink gives a commit only a few more attempts, at once, before it fails the job.
 */
record LinkCommitter(CommittablePublisher publisher) implements Committer<Committable> {
    @Override
    public void commit(Collection<CommitRequest<Committable>> requests)
            throws InterruptedException {
        publisher.commit(requests.stream().map(CommitRequest::getCommittable).toList());
    }

    @Override
    public void close() {
        publisher.close();
    }
}
