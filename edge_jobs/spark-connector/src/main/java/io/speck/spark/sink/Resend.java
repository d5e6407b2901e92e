package io.speck.spark.sink;

import io.speck.link.JobContract;
import io.speck.link.sink.BlockingLoop;
import io.speck.link.sink.CommittablePublisher;
import io.speck.link.sink.LinkChooser;
import io.speck.link.sink.LinkWriter;
import io.speck.link.sink.LinkWriters;
import io.speck.link.transport.Delivery;
import io.speck.spark.metrics.QueryMetrics;
import io.speck.spark.metrics.SparkMetrics;
import java.io.IOException;
import java.nio.file.Path;

/**
 * The sink of a query alone: it sends what its broker has forgotten since the query ended. It runs
 * no batch and reads no link.
 */
public final class Resend {
    private Resend() {}

    /**
     * Sends what the newest batch has stored and the broker does not have; returns when the broker
     * has all of it. While the broker is away it waits.
     *
     * @param queryFolder the query's checkpoint
     */
    public static void run(Path queryFolder, JobContract contract)
            throws IOException, InterruptedException {
        Path folder = queryFolder.resolve("out");
        BatchOutput output =
                BatchOutput.read(folder, BatchOutput.newest(folder), contract.port().size());
        if (output == null) {
            return;
        }
        String key = queryFolder.toString();
        SparkMetrics metrics = QueryMetrics.open(queryFolder, QueryMetrics.End.SINK);
        try (CommittablePublisher publisher =
                new CommittablePublisher(
                        contract.port(), contract.settings(), key, true, metrics)) {
            publisher.commit(output.committables());
            if (contract.sink().delivery() != Delivery.EXACTLY_ONCE) {
                flush(contract, key, output, metrics);
            }
        }
    }

    /** In these modes the writer has the connection, and what it has sent is in its state. */
    private static void flush(
            JobContract contract, String key, BatchOutput output, SparkMetrics metrics)
            throws IOException, InterruptedException {
        LinkWriters writers =
                new LinkWriters(contract.port(), contract.attempt(), contract.settings(), key);
        LinkWriter writer =
                writers.open(LinkChooser.inTurn(), output.states(), new BlockingLoop(), metrics);
        try {
            writer.flush();
        } finally {
            writer.close();
        }
    }
}
