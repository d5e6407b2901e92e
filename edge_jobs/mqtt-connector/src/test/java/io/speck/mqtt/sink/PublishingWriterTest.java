package io.speck.mqtt.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.speck.mqtt.connection.BrokerAddress;
import io.speck.mqtt.connection.Delivery;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.protocol.Batching;
import io.speck.mqtt.protocol.ProducerEpoch;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.Wait;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.streaming.runtime.tasks.TestProcessingTimeService;
import org.apache.flink.util.function.ThrowingRunnable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PublishingWriterTest {
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
        PublishingWriter writer =
                new PublishingWriter(
                        nowhere,
                        ProducerEpoch.of("p", 1),
                        new SinkSettings(false, MEBIBYTE, Duration.ofSeconds(15), 0, 1000, Batching.OFF),
                        new Waiting(),
                        new TestProcessingTimeService(),
                        UnregisteredMetricsGroup.createSinkWriterMetricGroup());
        writer.start(List.of());
        byte[] record = new byte[MEBIBYTE];
        for (int i = 0; i < Publisher.MAX_PENDING_BYTES / MEBIBYTE; i++) {
            writer.write(record, null);
        }
        assertThrows(WouldWait.class, () -> writer.write(record, null));
        assertEquals(16, writer.snapshotState(1).get(0).number());
        writer.close();
    }

    /** Between two attempts to connect there is nothing to do, and a cancellation must be heard. */
    @Test
    void restsWhileItsBrokerIsAway(@TempDir Path folder) throws Exception {
        BlockingQueue<ThrowingRunnable<? extends Exception>> letters = new LinkedBlockingQueue<>();
        try (Mosquitto broker = Mosquitto.started(folder)) {
            PublishingWriter writer =
                    new PublishingWriter(
                            new LinkConfig(
                                    BrokerAddress.parse(broker.address()),
                                    "t",
                                    "c",
                                    Delivery.AT_LEAST_ONCE,
                                    10),
                            ProducerEpoch.of("p", 1),
                            new SinkSettings(false, MEBIBYTE, Duration.ofSeconds(15), 0, 1000, Batching.OFF),
                            new Queueing(letters),
                            new TestProcessingTimeService(),
                            UnregisteredMetricsGroup.createSinkWriterMetricGroup());
            writer.start(List.of()).awaitReady();
            broker.freeze();
            FutureTask<Void> writing =
                    new FutureTask<>(
                            () -> {
                                for (int i = 0; i < 11; i++) {
                                    writer.write(new byte[10], null);
                                }
                                return null;
                            });
            Thread task = new Thread(writing);
            task.start();
            Wait.until("the window is full", () -> rests(task));
            broker.kill();
            int[] resting = new int[1];
            Wait.until(
                    "it rests between attempts to connect",
                    () -> (resting[0] = rests(task) ? resting[0] + 1 : 0) == 30);
            letters.add(
                    () -> {
                        throw new WouldWait(); // what a cancellation does to the task
                    });
            assertThrows(ExecutionException.class, writing::get);
            writer.close();
        }
    }

    private static boolean rests(Thread task) {
        return task.getState() == Thread.State.WAITING;
    }

    /** The task would wait for the network now. */
    private static final class WouldWait extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private static final class Queueing extends Waiting {
        private final BlockingQueue<ThrowingRunnable<? extends Exception>> letters;

        Queueing(BlockingQueue<ThrowingRunnable<? extends Exception>> letters) {
            this.letters = letters;
        }

        @Override
        public void execute(
                MailOptions options,
                ThrowingRunnable<? extends Exception> command,
                String description,
                Object... arguments) {
            letters.add(command);
        }

        @Override
        public void yield() throws InterruptedException {
            ThrowingRunnable.unchecked(letters.take()).run();
        }
    }

    private static class Waiting implements MailboxExecutor {
        @Override
        public void execute(
                MailOptions options,
                ThrowingRunnable<? extends Exception> command,
                String description,
                Object... arguments) {}

        @Override
        public void yield() throws InterruptedException {
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
