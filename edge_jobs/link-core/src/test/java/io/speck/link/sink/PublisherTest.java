package io.speck.link.sink;

import static io.speck.link.transport.OutgoingMessage.Outcome.DELIVERED;
import static io.speck.link.transport.OutgoingMessage.Outcome.REFUSED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.metrics.CountedMetrics;
import io.speck.link.protocol.Batching;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SeenNumbers;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
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

    /** Reading that in a log takes a while: only what an earlier incarnation may have sent counts. */
    @Test
    void aSinkThatBeginsDoesNotAskWhatTheBrokerHas() {
        assertNull(broker.asked());
        publish(1, 3);
        broker.connect(WINDOW);
        assertNull(broker.asked(), "what has no answer is sent again");
    }

    @Test
    void whatWasAcknowledgedNotLongAgoIsAskedFor() {
        publish(1, 3);
        broker.answer(DELIVERED, DELIVERED);
        publisher.advance();
        broker.connect(WINDOW);
        assertEquals(new SentNumber("p", 7, 2), broker.asked());
    }

    @Test
    void whatComesFromAStateIsAskedForUntilTheBrokerHasIt() {
        publisher.doubt(new SinkMessage(ProducerEpoch.of("p", 7), 1, Message.of(new byte[10])));
        publish(1, 3);
        broker.answer(DELIVERED);
        broker.connect(WINDOW);
        assertEquals(new SentNumber("p", 7, 1), broker.asked());
        publisher.advance();
        broker.answer(DELIVERED, DELIVERED, DELIVERED);
        publisher.advance();
        assertTrue(publisher.announce());
        broker.connect(WINDOW);
        assertEquals(new SentNumber("p", 7, 3), broker.asked());
    }

    private static SentRecords seen(long... numbers) {
        SeenNumbers seen = new SeenNumbers("p");
        for (long number : numbers) {
            seen.add(new SentNumber("p", 7, number));
        }
        return seen;
    }

    /** What came first was refused, what came after it not: its number proves nothing. */
    @Test
    void whatALogLacksIsSentThoughItHasWhatCameAfter() {
        publish(1, 4);
        broker.takeSent();
        broker.connect(WINDOW, seen(3, 4));
        publisher.advance();
        assertEquals(List.of(1L, 2L), broker.takeSent());
    }

    @Test
    void whatWasRefusedIsSentOverTheNextConnectionThoughTheLogHasWhatCameAfter() {
        publish(1, 4);
        broker.answer(REFUSED, REFUSED, DELIVERED, DELIVERED);
        publisher.advance();
        broker.takeSent();
        broker.connect(WINDOW, seen(3, 4));
        publisher.advance();
        assertEquals(List.of(1L, 2L), broker.takeSent());
    }

    @Test
    void theSameHoldsForTheWindow() {
        publish(1, 4);
        broker.answer(DELIVERED, DELIVERED, DELIVERED, DELIVERED);
        publisher.advance();
        broker.connect(WINDOW); // the log was cut
        publisher.advance();
        broker.answer(REFUSED, REFUSED, DELIVERED, DELIVERED);
        publisher.advance();
        broker.takeSent();
        broker.connect(WINDOW, seen(3, 4));
        publisher.advance();
        assertEquals(List.of(1L, 2L), broker.takeSent());
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
