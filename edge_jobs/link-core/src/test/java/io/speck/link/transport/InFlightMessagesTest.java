package io.speck.link.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.Message;
import io.speck.link.transport.OutgoingMessage.Outcome;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Outcomes in turn, and those that come out of turn. */
class InFlightMessagesTest {
    private final InFlightMessages inFlight = new InFlightMessages();
    private final List<OutgoingMessage> messages =
            IntStream.rangeClosed(1, 4)
                    .mapToObj(i -> new OutgoingMessage(null, i, Message.of(new byte[0])))
                    .toList();

    @BeforeEach
    void send() {
        for (OutgoingMessage message : messages) {
            inFlight.add(message);
            message.setPacket(packet((int) message.number()));
        }
    }

    private static Object packet(int number) {
        return ("packet " + number).intern();
    }

    private List<Outcome> outcomes() {
        return messages.stream().map(OutgoingMessage::outcome).toList();
    }

    @Test
    void whatWasNotSentAtAllWaitsForItsTurn() {
        inFlight.settleUnsent(packet(3), Outcome.UNDELIVERABLE, "large");
        inFlight.settleUnsent(packet(2), Outcome.UNDELIVERABLE, "larger");
        assertEquals(0, inFlight.settledCount());
        assertEquals(Outcome.UNDER_WAY, messages.get(1).outcome());
        assertTrue(inFlight.settle(packet(1), Outcome.DELIVERED, null));
        assertEquals(3, inFlight.settledCount());
        assertTrue(inFlight.settle(packet(4), Outcome.DELIVERED, null));
        assertEquals(
                List.of(
                        Outcome.DELIVERED,
                        Outcome.UNDELIVERABLE,
                        Outcome.UNDELIVERABLE,
                        Outcome.DELIVERED),
                outcomes());
        assertEquals("larger", messages.get(1).problem());
    }

    @Test
    void anAnswerOutOfTurnSettlesNothing() {
        assertFalse(inFlight.settle(packet(2), Outcome.DELIVERED, null));
        assertEquals(0, inFlight.settledCount());
        assertEquals(Outcome.UNDER_WAY, messages.get(1).outcome());
    }

    /** The library names no packet by MQTT 3.1.1. */
    @Test
    void withoutPacketsAnswersAreTakenInOrder() {
        messages.forEach(message -> message.setPacket(null));
        assertTrue(inFlight.settle(null, Outcome.DELIVERED, null));
        assertTrue(inFlight.settle(null, Outcome.CUT_OFF, "lost"));
        assertEquals(
                List.of(
                        Outcome.DELIVERED,
                        Outcome.CUT_OFF,
                        Outcome.UNDER_WAY,
                        Outcome.UNDER_WAY),
                outcomes());
    }
}
