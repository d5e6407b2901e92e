package io.speck.mqtt.sink;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.connection.LinkProblem.Guilt;
import io.speck.mqtt.protocol.Message;
import io.speck.mqtt.protocol.ProducerEpoch;
import org.junit.jupiter.api.Test;

class EndingMessageTest {
    private final EndingMessage ending = new EndingMessage();

    private static SinkMessage message(long number) {
        return new SinkMessage(
                ProducerEpoch.of("p", 1), number, Message.of(new byte[] {1}));
    }

    @Test
    void theFirstMessageOfTwoEndsGoesAloneAndThenIsTheOne() {
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        assertFalse(ending.sendsAlone());
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        assertTrue(ending.sendsAlone());
        assertTrue(ending.noteEnd(message(5), Guilt.CERTAIN));
    }

    @Test
    void aBrokerThatIsKilledProvesLess() {
        for (int end = 0; end < 4; end++) {
            assertFalse(ending.noteEnd(message(5), Guilt.POSSIBLE));
        }
        assertTrue(ending.noteEnd(message(5), Guilt.POSSIBLE));
    }

    @Test
    void endsThatHaveAnotherReasonProveNothing() {
        for (int end = 0; end < 20; end++) {
            assertFalse(ending.noteEnd(message(5), Guilt.NONE));
        }
        assertFalse(ending.sendsAlone());
    }

    @Test
    void anotherFirstMessageBeginsAnew() {
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        assertFalse(ending.noteEnd(message(6), Guilt.CERTAIN));
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        assertFalse(ending.sendsAlone());
    }

    @Test
    void anAnswerClearsTheSuspect() {
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        assertFalse(ending.noteEnd(message(5), Guilt.CERTAIN));
        ending.noteAnswer(message(4));
        assertTrue(ending.sendsAlone());
        ending.noteAnswer(message(5));
        assertFalse(ending.sendsAlone());
    }
}
