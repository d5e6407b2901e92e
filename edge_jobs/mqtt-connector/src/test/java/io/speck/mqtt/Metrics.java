package io.speck.mqtt;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.testutils.InMemoryReporter;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.test.junit5.MiniClusterExtension;

/** What the jobs of one small Flink report; of each class its own. */
final class Metrics {
    private volatile InMemoryReporter reporter;

    /** A reporter ends with its cluster: one that starts again, for a repeat, gets another. */
    MiniClusterExtension cluster() {
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

    InMemoryReporter reporter() {
        return reporter;
    }
}
