package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.metrics.SimpleCounter;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class PendingResendTest {
    private final ResendWindow window =
            new ResendWindow(Duration.ofSeconds(15), 1 << 20, 0, new SimpleCounter());
    private final PendingResend resend = new PendingResend(window);

    private void acknowledge(int count) {
        for (int i = 1; i <= count; i++) {
            window.add(
                    new SinkMessage(ProducerEpoch.of("p", 7), i, Message.of(new byte[1])), 0);
        }
    }

    private List<Long> begin(long confirmed) {
        SentNumber known = confirmed == 0 ? null : new SentNumber("p", 7, confirmed);
        return resend.begin(known).stream().map(SinkMessage::number).toList();
    }

    @Test
    void nothingIsDueWhileNothingWasAcknowledged() {
        resend.startOver();
        assertFalse(resend.isDue());
        assertFalse(resend.canBegin(false));
        assertEquals(0, resend.size());
    }

    @Test
    void overANewConnectionWhatTheBrokerLacksIsSentAgain() {
        acknowledge(3);
        assertEquals(0, resend.size());
        resend.startOver();
        assertEquals(3, resend.size());
        assertTrue(resend.canBegin(true));
        assertEquals(List.of(3L), begin(2));
        assertFalse(resend.isDue());
        assertEquals(0, resend.size());
    }

    @Test
    void aReaderThatAsksGetsAllWhateverTheBrokerHas() {
        acknowledge(3);
        resend.request();
        assertFalse(resend.canBegin(true), "what was sent may have gone to other readers only");
        assertTrue(resend.canBegin(false));
        assertEquals(List.of(1L, 2L, 3L), begin(3));
        resend.startOver();
        assertEquals(List.of(), begin(3), "which counts once");
    }

    @Test
    void aRequestOutlivesALossOfTheConnection() {
        acknowledge(2);
        resend.request();
        resend.startOver();
        assertEquals(List.of(1L, 2L), begin(2));
    }
}
