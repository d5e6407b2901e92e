package io.speck.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class LogConnectionTest {
    private static final LinkConfig LINK =
            new LinkConfig(
                    KafkaAddress.parse("kafka://127.0.0.1:1"),
                    "t",
                    "client",
                    Delivery.EXACTLY_ONCE,
                    10);

    private final List<RuntimeException> ends = new ArrayList<>();

    /** A connection that fails where it is said. */
    private static class Failing extends LogConnection {
        private final Throwable opening;
        private final Throwable releasing;
        private RuntimeException reported;

        Failing(Watch watch, Throwable opening, Throwable releasing) {
            super(watch);
            this.opening = opening;
            this.releasing = releasing;
        }

        private static void fail(Throwable with) {
            if (with instanceof Error error) {
                throw error;
            }
            if (with instanceof RuntimeException exception) {
                throw exception;
            }
        }

        @Override
        void open() {
            fail(opening);
        }

        @Override
        void reportReady() {}

        @Override
        void serve() {}

        @Override
        void release() {
            fail(releasing);
        }

        @Override
        void reportEnd(RuntimeException cause) {
            reported = cause;
        }

        @Override
        void wake() {}
    }

    private final LogConnection.Watch watch =
            new LogConnection.Watch() {
                @Override
                public void onReady(LogConnection connection) {}

                @Override
                public void onEnd(LogConnection connection, RuntimeException cause) {
                    ends.add(cause);
                }
            };

    @Test
    void anErrorEndsItLikeAnyOtherProblem() {
        Error error = new OutOfMemoryError("Direct buffer memory");
        Failing connection = new Failing(watch, error, null);
        connection.run();
        assertSame(error, ends.get(0).getCause());
        assertSame(ends.get(0), connection.reported);
        assertTrue(connection.isEnded());
    }

    @Test
    void whatFailsAtItsEndHidesNothing() {
        RuntimeException cause = new IllegalStateException("why it ended");
        Error error = new NoClassDefFoundError("Gone");
        new Failing(watch, cause, error).run();
        assertEquals(List.of(cause), ends);
        assertSame(error, cause.getSuppressed()[0]);
    }

    /** The user of the link would wait for ever for the next one. */
    @Test
    void afterAnErrorTheLinkIsConnectedAgain() throws Exception {
        AtomicInteger made = new AtomicInteger();
        KafkaClient<Failing> client =
                new KafkaClient<>(
                        LINK,
                        "read",
                        events -> {
                            if (made.incrementAndGet() == 2) {
                                throw new OutOfMemoryError("unable to create native thread");
                            }
                            return new Failing(events, new OutOfMemoryError("heap"), null);
                        });
        try {
            client.start();
            Wait.until("it tries again", () -> made.get() > 3);
            assertTrue(client.problem().startsWith("cannot read"), client.problem());
        } finally {
            client.close();
        }
    }
}
