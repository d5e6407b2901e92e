package io.speck.mqtt.testing;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.testutils.InMemoryReporter;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.test.junit5.MiniClusterExtension;

/** What the jobs of one small Flink report; of each class its own. */
public final class ReportedMetrics {
    private volatile InMemoryReporter reporter;

    /** A reporter ends with its cluster: one that starts again, for a repeat, gets another. */
    public MiniClusterExtension cluster() {
        return new MiniClusterExtension(
                () -> {
                    reporter = InMemoryReporter.create();
                    return new MiniClusterResourceConfiguration.Builder()
                            .setNumberTaskManagers(1)
                            .setNumberSlotsPerTaskManager(2)
                            .setConfiguration(reporter.addToConfiguration(new Configuration()))
                            .build();
                });
    }

    public InMemoryReporter reporter() {
        return reporter;
    }
}
