package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.util.function.ThrowingRunnable;
import org.junit.jupiter.api.Test;

class MqttSinkWriterTest {
    private static final int MEBIBYTE = 1 << 20;

    @Test
    void holdsABoundedAmountForABrokerThatIsAway() throws Exception {
        LinkConfig nowhere =
                new LinkConfig(
                        BrokerAddress.parse("tcp://127.0.0.1:1"),
                        "t",
                        "c",
                        Delivery.AT_LEAST_ONCE,
                        10_000);
        MqttSinkWriter writer =
                new MqttSinkWriter(
                        nowhere,
                        Series.of("p", 1),
                        new SinkSettings(false, MEBIBYTE, Duration.ofSeconds(15), 0),
                        new Waiting(),
                        UnregisteredMetricsGroup.createSinkWriterMetricGroup());
        byte[] record = new byte[MEBIBYTE];
        for (int i = 0; i < Outlet.MOST_PENDING_BYTES / MEBIBYTE; i++) {
            writer.write(record, null);
        }
        assertThrows(WouldWait.class, () -> writer.write(record, null));
        assertEquals(16, writer.snapshotState(1).get(0).number());
        writer.close();
    }

    /** The task would wait for the network now. */
    private static final class WouldWait extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private static final class Waiting implements MailboxExecutor {
        @Override
        public void execute(
                MailOptions options,
                ThrowingRunnable<? extends Exception> command,
                String description,
                Object... arguments) {}

        @Override
        public void yield() {
            throw new WouldWait();
        }

        @Override
        public boolean tryYield() {
            return false;
        }

        @Override
        public boolean shouldInterrupt() {
            return false;
        }
    }
}
