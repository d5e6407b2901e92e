package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.Guilt;
import org.junit.jupiter.api.Test;

class EndingMessageTest {
    private final EndingMessage ending = new EndingMessage();

    private static SinkMessage message(long number) {
        return new SinkMessage(
                ProducerEpoch.of("p", 1), number, Message.of(new byte[] {1}));
    }

    private boolean endAt(long number, long count, Guilt guilt) {
        return ending.noteEnd(message(number), count, guilt);
    }

    private void answer(int count) {
        for (int i = 0; i < count; i++) {
            ending.noteAnswer();
        }
    }

    @Test
    void afterTwoEndsMessagesGoAloneAndTheOneThatEndsTheConnectionIsFound() {
        assertFalse(endAt(5, 3, Guilt.CERTAIN));
        assertFalse(ending.sendsAlone());
        assertFalse(endAt(5, 3, Guilt.CERTAIN));
        assertTrue(ending.sendsAlone());
        assertTrue(endAt(5, 3, Guilt.CERTAIN));
    }

    @Test
    void aBrokerThatIsKilledProvesLess() {
        for (int end = 0; end < 4; end++) {
            assertFalse(endAt(5, 1, Guilt.POSSIBLE));
        }
        assertTrue(endAt(5, 1, Guilt.POSSIBLE));
    }

    @Test
    void endsThatHaveAnotherReasonProveNothing() {
        for (int end = 0; end < 20; end++) {
            assertFalse(endAt(5, 1, Guilt.NONE));
        }
        assertFalse(ending.sendsAlone());
    }

    /** The broker is slow: message 4, the first that is sent again, has no answer at any end. */
    @Test
    void whatHadAnAnswerIsNeverTheOne() {
        SinkMessage kept = message(4);
        kept.kept = true;
        for (int end = 0; end < 9; end++) {
            assertFalse(ending.noteEnd(kept, 1, Guilt.POSSIBLE));
        }
        assertTrue(ending.sendsAlone());
        for (int end = 1; end <= 3; end++) {
            assertEquals(end == 3, endAt(5, 1, Guilt.POSSIBLE));
        }
    }

    @Test
    void endsWhileOnlyWhatHadAnAnswerIsSentAgainProveNothing() {
        SinkMessage kept = message(4);
        kept.kept = true;
        for (int end = 0; end < 9; end++) {
            assertFalse(ending.noteEnd(kept, 0, Guilt.CERTAIN));
        }
        assertFalse(ending.sendsAlone());
    }

    @Test
    void anotherOneThatEndsTheConnectionAloneIsCountedAnew() {
        assertFalse(endAt(4, 5, Guilt.POSSIBLE));
        assertFalse(endAt(4, 5, Guilt.POSSIBLE));
        assertFalse(endAt(4, 5, Guilt.POSSIBLE));
        assertFalse(endAt(4, 5, Guilt.POSSIBLE));
        assertFalse(endAt(5, 5, Guilt.POSSIBLE));
        assertFalse(endAt(5, 5, Guilt.POSSIBLE));
        assertTrue(endAt(5, 5, Guilt.POSSIBLE));
    }

    @Test
    void answersToAllThatWereSuspectedClearThem() {
        assertFalse(endAt(5, 2, Guilt.CERTAIN));
        assertFalse(endAt(5, 2, Guilt.CERTAIN));
        answer(1);
        assertTrue(ending.sendsAlone());
        answer(1);
        assertFalse(ending.sendsAlone());
        assertFalse(endAt(5, 2, Guilt.CERTAIN));
        assertFalse(ending.sendsAlone());
    }

    @Test
    void endsWithAnswersToAllBetweenThemProveNothing() {
        for (int end = 0; end < 20; end++) {
            assertFalse(endAt(end, 2, Guilt.POSSIBLE));
            answer(2);
        }
        assertFalse(ending.sendsAlone());
    }
}
