package io.speck.mqtt.testing;

import io.speck.mqtt.connection.Supervisor;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** For tests whose brokers are away: a task does not wait for them for long at its start. */
public final class ShortReadyTimeout implements BeforeEachCallback, AfterEachCallback {
    @Override
    public void beforeEach(ExtensionContext context) {
        System.setProperty(Supervisor.READY_TIMEOUT_PROPERTY, "1000");
    }

    @Override
    public void afterEach(ExtensionContext context) {
        System.clearProperty(Supervisor.READY_TIMEOUT_PROPERTY);
    }
}
