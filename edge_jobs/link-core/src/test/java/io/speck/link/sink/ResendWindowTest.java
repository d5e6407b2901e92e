package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.metrics.SimpleCounter;
import io.speck.link.protocol.Batching;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SeenNumbers;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ResendWindowTest {
    private static final long SECOND = 1_000_000_000L;

    private final SimpleCounter cut = new SimpleCounter();

    private ResendWindow window(int seconds, long bytes) {
        return new ResendWindow(
                Duration.ofSeconds(seconds), bytes, 3 * (100 + NumberedMessages.OVERHEAD_BYTES), cut);
    }

    private static SinkMessage record(long number) {
        return new SinkMessage(ProducerEpoch.of("p", 7), number, Message.of(new byte[100]));
    }

    /** Numbers 1..count, acknowledged ten seconds apart. */
    private ResendWindow filled(int count) {
        ResendWindow window = window(15, 1_000_000);
        for (int i = 1; i <= count; i++) {
            window.add(record(i), i * 10 * SECOND);
        }
        return window;
    }

    private static List<Long> again(ResendWindow window, SentRecords known) {
        return window.sendAgain(known).stream().map(record -> record.number()).toList();
    }

    private static SentNumber has(long epoch, long number) {
        return new SentNumber("p", epoch, number);
    }

    @Test
    void keepsWhatIsYoung() {
        ResendWindow window = filled(5);
        window.prune(51 * SECOND);
        assertEquals(List.of(4L, 5L), again(window, null));
        assertEquals(0, cut.getCount());
    }

    @Test
    void isKeptForAsLongAsTheBrokerIsAway() {
        ResendWindow window = filled(5);
        window.setConnected(false);
        window.prune(5000 * SECOND);
        assertEquals(List.of(4L, 5L), again(window, null));
    }

    /** A machine without power ends no connection. */
    @Test
    void isKeptUntilASilentBrokerMustBeAlive() {
        ResendWindow window = filled(5);
        window.setConnected(true);
        window.prune(50 * SECOND + 15 * SECOND + ResendWindow.LONGEST_SILENCE_NS);
        assertEquals(1, window.size());
        window.prune(51 * SECOND + 15 * SECOND + ResendWindow.LONGEST_SILENCE_NS);
        assertEquals(0, window.size());
    }

    @Test
    void aCheckpointHasRoomForFullMessagesToo() {
        SinkSettings usual =
                new SinkSettings(
                        true,
                        1_048_576,
                        SinkSettings.RESEND_WINDOW,
                        0,
                        SinkSettings.RESEND_STATE_BYTES,
                        Batching.OFF);
        ResendWindow window =
                new ResendWindow(
                        usual.resendWindow(), 32 << 20, usual.resendStateBytes(), cut);
        byte[] full = new byte[usual.maxBatchBytes()];
        for (int i = 0; i < 3; i++) {
            Message message = new Message(Message.Format.BATCH, 1000, full);
            window.add(new SinkMessage(ProducerEpoch.of("p", 7), 1 + 1000 * i, message), SECOND);
        }
        assertEquals(3, window.snapshot(SECOND).get(0).messages().size());
        assertEquals(0, window.leftOut());
    }

    @Test
    void whatTheBrokerHasIsNotSentAgain() {
        assertEquals(List.of(4L, 5L), again(filled(5), has(7, 3)));
        assertEquals(List.of(), again(filled(5), has(7, 5)));
        assertEquals(List.of(), again(filled(5), has(7, 99)));
    }

    /** Else it would be kept for ever, and all that comes after it. */
    @Test
    void whatTheBrokerHasAfterAllIsForgottenInTime() {
        ResendWindow window = filled(2);
        window.sendAgain(null);
        assertEquals(List.of(), again(window, has(7, 2)));
        window.add(record(3), 1000 * SECOND);
        window.prune(1000 * SECOND);
        assertEquals(1, window.size());
    }

    @Test
    void whatWasAcknowledgedLiesInALogBeforeWhatIsSeenOfIt() {
        SeenNumbers seen = new SeenNumbers("p");
        seen.add(has(7, 4));
        assertEquals(List.of(5L), again(filled(5), seen));
    }

    @Test
    void ofAnotherEpochsNumbersNothingIsKnown() {
        assertEquals(List.of(1L, 2L), again(filled(2), has(8, 5)));
    }

    @Test
    void anEarlierEpochWentOutBeforeALaterOne() {
        ResendWindow window = filled(2);
        window.add(new SinkMessage(ProducerEpoch.of("p", 8), 1, Message.of(new byte[1])), 30 * SECOND);
        window.add(new SinkMessage(ProducerEpoch.of("p", 8), 2, Message.of(new byte[1])), 40 * SECOND);
        assertEquals(List.of(2L), again(window, has(8, 1)));
    }

    /** A checkpoint meanwhile must still have it, however long it takes. */
    @Test
    void whatIsSentAgainStaysUntilItIsAcknowledgedAndThenAsLongAsBefore() {
        ResendWindow window = filled(2);
        List<SinkMessage> again = window.sendAgain(null);
        window.prune(1000 * SECOND);
        assertEquals(2, window.size());
        again.forEach(record -> window.add(record, 1000 * SECOND));
        window.add(record(3), 1001 * SECOND);
        window.prune(1014 * SECOND);
        assertEquals(List.of(1L, 2L, 3L), again(window, null));
        again.forEach(record -> window.add(record, 1014 * SECOND));
        window.add(record(4), 1030 * SECOND);
        window.prune(1030 * SECOND);
        assertEquals(List.of(3L, 4L), again(window, null), "the third is on its way");
    }

    @Test
    void whatWillNotBeSentAgainIsForgotten() {
        ResendWindow window = filled(2);
        window.forget(window.sendAgain(null).get(0));
        assertEquals(List.of(2L), again(window, null));
    }

    @Test
    void aCheckpointGetsTheNewest() {
        ResendWindow window = window(15, 1_000_000);
        for (int i = 1; i <= 5; i++) {
            window.add(record(i), 0);
        }
        List<NumberedMessages> runs = window.snapshot(0);
        assertEquals(1, runs.size());
        assertEquals(3, runs.get(0).first());
        assertEquals(3, runs.get(0).messages().size());
        assertEquals(2, window.leftOut());
    }

    @Test
    void runsHaveNoHoles() {
        List<SinkMessage> records = new ArrayList<>(List.of(record(1), record(2), record(4)));
        records.add(new SinkMessage(ProducerEpoch.of("p", 8), 5, Message.of(new byte[0])));
        List<NumberedMessages> runs = NumberedMessages.join(records);
        assertEquals(List.of(1L, 4L, 5L), runs.stream().map(NumberedMessages::first).toList());
        assertEquals(2, runs.get(0).messages().size());
    }

    @Test
    void isBoundedAndCountsWhatItCuts() {
        ResendWindow window = window(15, 3 * (100 + Message.OVERHEAD_BYTES));
        for (int i = 1; i <= 5; i++) {
            window.add(record(i), 0);
        }
        assertEquals(2, cut.getCount());
        assertEquals(List.of(3L, 4L, 5L), again(window, null));
    }

    @Test
    void ofNoTimeKeepsNothing() {
        ResendWindow window = window(0, 1_000_000);
        window.add(record(1), 0);
        assertEquals(0, window.size());
        assertEquals(0, cut.getCount());
    }
}
