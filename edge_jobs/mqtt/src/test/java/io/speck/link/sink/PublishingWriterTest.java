package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.speck.link.metrics.CountedMetrics;
import io.speck.link.protocol.Batching;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.testing.Wait;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.mqtt.testing.Mosquitto;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PublishingWriterTest {
    private static final int MEBIBYTE = 1 << 20;

    @Test
    void holdsABoundedAmountForABrokerThatIsAway() throws Exception {
        LinkConfig nowhere =
                new LinkConfig(
                        Transports.parse("tcp://127.0.0.1:1"),
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
                        new CountedMetrics(),
                        "");
        writer.start(List.of());
        byte[] record = new byte[MEBIBYTE];
        for (int i = 0; i < Publisher.MAX_PENDING_BYTES / MEBIBYTE; i++) {
            writer.write(record);
        }
        assertThrows(WouldWait.class, () -> writer.write(record));
        assertEquals(16, writer.snapshot().get(0).number());
        writer.close();
    }

    /** Between two attempts to connect there is nothing to do, and a cancellation must be heard. */
    @Test
    void restsWhileItsBrokerIsAway(@TempDir Path folder) throws Exception {
        BlockingQueue<Runnable> letters = new LinkedBlockingQueue<>();
        try (Mosquitto broker = Mosquitto.started(folder)) {
            PublishingWriter writer =
                    new PublishingWriter(
                            new LinkConfig(
                                    Transports.parse(broker.address()),
                                    "t",
                                    "c",
                                    Delivery.AT_LEAST_ONCE,
                                    10),
                            ProducerEpoch.of("p", 1),
                            new SinkSettings(false, MEBIBYTE, Duration.ofSeconds(15), 0, 1000, Batching.OFF),
                            new Queueing(letters),
                            new CountedMetrics(),
                        "");
            writer.start(List.of()).awaitReady();
            broker.freeze();
            FutureTask<Void> writing =
                    new FutureTask<>(
                            () -> {
                                for (int i = 0; i < 11; i++) {
                                    writer.write(new byte[10]);
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
        private final BlockingQueue<Runnable> letters;

        Queueing(BlockingQueue<Runnable> letters) {
            this.letters = letters;
        }

        @Override
        public void execute(Runnable task) {
            letters.add(task);
        }

        @Override
        public void runNext() throws InterruptedException {
            letters.take().run();
        }
    }

    private static class Waiting implements TaskLoop {
        @Override
        public void execute(Runnable task) {}

        @Override
        public void runNext() throws InterruptedException {
            throw new WouldWait();
        }

        @Override
        public long timeMs() {
            return 0;
        }

        @Override
        public void runAt(long timeMs, Runnable task) {}
    }
}
