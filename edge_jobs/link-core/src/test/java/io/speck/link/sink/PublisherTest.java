package io.speck.link.sink;

import static io.speck.link.transport.OutgoingMessage.Outcome.DELIVERED;
import static io.speck.link.transport.OutgoingMessage.Outcome.REFUSED;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.metrics.CountedMetrics;
import io.speck.link.protocol.Batching;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class PublisherTest {
    private static final int WINDOW = 100;
    private static final Duration RESEND_WINDOW = Duration.ofMinutes(5);

    private final ScriptedTransport broker = new ScriptedTransport();
    private Publisher publisher;

    @BeforeEach
    void connect() {
        LinkConfig link =
                new LinkConfig(
                        ScriptedTransport.ADDRESS, "t", "c-out", Delivery.AT_LEAST_ONCE, WINDOW);
        SinkSettings settings =
                new SinkSettings(true, 1000, RESEND_WINDOW, 1_000_000, 0, Batching.OFF);
        SinkCounters counters = SinkCounters.register(new CountedMetrics());
        publisher =
                new Publisher(
                        broker,
                        link,
                        settings,
                        settings.newResendWindow(counters),
                        LinkStatus.Readers.SOME,
                        counters,
                        Runnable::run,
                        () -> publisher.advance());
        broker.connect(WINDOW);
        publisher.advance();
    }

    private void publish(long first, long last) {
        for (long number = first; number <= last; number++) {
            publisher.add(
                    new SinkMessage(ProducerEpoch.of("p", 7), number, Message.of(new byte[10])));
        }
        publisher.advance();
    }

    /** Else a reader that has lost its session would take the window for repeats of what came. */
    @Test
    void theWindowOfAReaderThatLostItsSessionGoesBeforeWhatTheBrokerRefuses() {
        publish(1, 2);
        broker.answer(DELIVERED, DELIVERED);
        publisher.advance();
        publish(3, 4);
        broker.answer(REFUSED, REFUSED);
        publisher.advance();
        assertEquals(List.of(1L, 2L, 3L, 4L), broker.takeSent());
        broker.loseReader();
        broker.passTime();
        assertEquals(List.of(1L), broker.takeSent(), "one is tried");
        broker.answer(DELIVERED);
        publisher.advance();
        assertEquals(List.of(2L, 3L, 4L), broker.takeSent());
    }

    @Test
    void whatIsRefusedWhileTheWindowIsSentAgainIsSentOnceMoreAndNoMore() {
        publish(1, 3);
        broker.answer(DELIVERED, DELIVERED, DELIVERED);
        publisher.advance();
        broker.loseReader();
        broker.answer(DELIVERED, REFUSED, REFUSED);
        publisher.advance();
        broker.takeSent();
        broker.loseReader();
        broker.passTime();
        broker.answer(DELIVERED);
        publisher.advance();
        assertEquals(List.of(1L, 2L, 3L), broker.takeSent());
        broker.answer(DELIVERED, DELIVERED);
        publisher.advance();
        assertEquals(0, publisher.pendingCount());
    }
}
