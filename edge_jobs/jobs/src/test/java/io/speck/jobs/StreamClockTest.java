package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class StreamClockTest {
    private static final long WINDOW = 60_000;
    private static final long IDLE_LIMIT = 120_000;
    private static final long DAY = 86_400_000;
    private OneInputStreamOperatorTestHarness<Detection, Detection> harness;

    @BeforeEach
    void open() throws Exception {
        harness = harness("A1", "A2");
        harness.open();
    }

    @AfterEach
    void close() throws Exception {
        harness.close();
    }

    private static OneInputStreamOperatorTestHarness<Detection, Detection> harness(
            String... streams) throws Exception {
        OneInputStreamOperatorTestHarness<Detection, Detection> harness =
                new OneInputStreamOperatorTestHarness<>(
                        new StreamClock(
                                new Windows(List.of(streams), WINDOW, IDLE_LIMIT, 0, DAY)));
        harness.setProcessingTime(1_000_000);
        return harness;
    }

    private void hear(Detection... detections) throws Exception {
        for (Detection detection : detections) {
            harness.processElement(new StreamRecord<>(detection));
        }
    }

    private static Detection at(String stream, long timeMs) {
        return Records.detection(stream, 1, timeMs);
    }

    /** The watermarks passed on since the last call. */
    private List<Long> times() {
        List<Long> times = new ArrayList<>();
        for (Object item : harness.getOutput()) {
            if (item instanceof Watermark mark) {
                times.add(mark.getTimestamp());
            }
        }
        harness.getOutput().clear();
        return times;
    }

    @Test
    void timeIsTheLeastOfTheStreams() throws Exception {
        hear(at("A1", 65_000), at("A1", 130_000));
        assertEquals(List.of(), times());
        hear(at("A2", 61_000));
        assertEquals(List.of(59_999L), times());
        hear(at("A2", 119_999));
        assertEquals(List.of(), times());
        hear(at("A2", 120_000));
        assertEquals(List.of(119_999L), times());
    }

    @Test
    void detectionsPassWithTheirTimeAndEndMarksDoNot() throws Exception {
        hear(at("A1", 65_000), Records.end("A1", 65_000));
        assertEquals(1, harness.getOutput().size());
        StreamRecord<?> record = (StreamRecord<?>) harness.getOutput().peek();
        assertEquals(65_000, record.getTimestamp());
    }

    @Test
    void aPausingStreamHoldsTimeBackUntilTheIdleLimit() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        assertEquals(List.of(59_999L), times());
        harness.setProcessingTime(1_000_000 + IDLE_LIMIT - 1);
        hear(at("A1", 200_000));
        assertEquals(List.of(), times());
        harness.setProcessingTime(1_000_000 + IDLE_LIMIT + 2000);
        assertEquals(List.of(179_999L), times());
        hear(at("A2", 70_000), at("A1", 400_000));
        assertEquals(List.of(), times(), "time never goes back, and A2 counts again");
        hear(at("A2", 250_000));
        assertEquals(List.of(239_999L), times());
    }

    @Test
    void aStreamNeverHeardHoldsTimeBackUntilTheIdleLimit() throws Exception {
        hear(at("A1", 200_000));
        harness.setProcessingTime(1_000_000 + IDLE_LIMIT - 1);
        hear(at("A1", 300_000));
        assertEquals(List.of(), times());
        harness.setProcessingTime(1_000_000 + IDLE_LIMIT + 2000);
        assertEquals(List.of(299_999L), times());
    }

    @Test
    void endMarksCloseTheLastWindowWhenEveryStreamHasEnded() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000), Records.end("A1", 65_000));
        assertEquals(List.of(59_999L), times());
        hear(at("A2", 200_000));
        assertEquals(List.of(179_999L), times(), "an ended stream holds nothing back");
        hear(Records.end("A2", 200_500));
        assertEquals(List.of(239_999L), times());
        hear(Records.end("A2", 200_500));
        assertEquals(List.of(), times());
    }

    @Test
    void aSilentStreamDoesNotKeepEndedOnesOpen() throws Exception {
        hear(at("A1", 65_000), Records.end("A1", 65_000));
        assertEquals(List.of(), times());
        harness.setProcessingTime(1_000_000 + IDLE_LIMIT + 2000);
        assertEquals(List.of(119_999L), times());
    }

    @Test
    void aDetectionAfterTheEndBeginsANewRound() throws Exception {
        hear(Records.end("A1", 65_000), Records.end("A2", 65_000));
        assertEquals(List.of(119_999L), times());
        hear(at("A1", 500_000));
        assertEquals(List.of(), times(), "A2 is awaited again");
        hear(at("A2", 400_000));
        assertEquals(List.of(359_999L), times());
    }

    @Test
    void aNewRoundAtEarlierTimesDoesNotTurnTimeBack() throws Exception {
        hear(Records.end("A1", 65_000), Records.end("A2", 65_000));
        times();
        hear(at("A1", 1000), at("A2", 61_000));
        assertEquals(List.of(), times());
    }

    @Test
    void undeclaredStreamsPassButDoNotMoveTime() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        times();
        hear(at("X9", 900_000));
        assertEquals(1, harness.getOutput().size());
        assertEquals(List.of(), times());
    }

    @Test
    void aRestoreKeepsTimeLastTimesAndEndMarks() throws Exception {
        hear(at("A1", 65_000), at("A2", 200_000), Records.end("A2", 200_000));
        assertEquals(List.of(59_999L), times());
        OperatorSubtaskState saved = harness.snapshot(1, 1);
        harness.close();

        harness = harness("A1", "A2");
        harness.initializeState(saved);
        harness.open();
        hear(at("A1", 70_000));
        assertEquals(Watermark.class, harness.getOutput().peek().getClass());
        assertEquals(List.of(59_999L), times(), "told again, ahead of the first record");
        hear(Records.end("A1", 70_000));
        assertEquals(List.of(239_999L), times());
    }

    @Test
    void silenceIsCountedAnewAfterARestore() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        OperatorSubtaskState saved = harness.snapshot(1, 1);
        harness.close();

        harness = harness("A1", "A2");
        harness.setProcessingTime(5_000_000);
        harness.initializeState(saved);
        harness.open();
        hear(at("A1", 300_000));
        assertEquals(List.of(59_999L), times());
        harness.setProcessingTime(5_000_000 + IDLE_LIMIT + 2000);
        assertEquals(List.of(), times(), "A1 is silent as long as A2 is: nothing moves time");
        hear(at("A1", 300_001));
        assertEquals(List.of(299_999L), times());
    }

    @Test
    void aRestoreMayDeclareOtherStreams() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        OperatorSubtaskState saved = harness.snapshot(1, 1);
        harness.close();

        harness = harness("A1", "A3");
        harness.initializeState(saved);
        harness.open();
        hear(at("A1", 300_000));
        assertEquals(List.of(59_999L), times());
        hear(at("A3", 250_000));
        assertEquals(List.of(239_999L), times());
    }

    @Test
    void oneTimeFarAheadDoesNotMoveTime() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        times();
        long far = 1L << 53;
        hear(at("A1", far), at("A2", far - 5), at("A1", 70_000), at("A2", 70_000));
        hear(at("A1", far), at("A2", far));
        assertEquals(List.of(), times());
        hear(at("A1", 130_000), at("A2", 130_000));
        assertEquals(List.of(119_999L), times());
        hear(at("A1", 130_000 + DAY), at("A2", 130_000 + DAY));
        assertEquals(List.of(DAY + 119_999), times(), "a day is no jump");
    }

    @Test
    void severalTimesFarAheadInARowAreBelieved() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000));
        times();
        long later = 10 * DAY + 1;
        for (int i = 0; i < 4; i++) {
            hear(at("A1", later));
        }
        hear(at("A2", 130_000));
        assertEquals(List.of(), times());
        hear(at("A1", later));
        assertEquals(List.of(119_999L), times());
        hear(at("A2", later));
        assertEquals(List.of(10 * DAY - 1), times(), "the others may follow at once");
    }

    @Test
    void anEndMarkFarAheadEndsItsStreamWhereItWas() throws Exception {
        hear(at("A1", 65_000), at("A2", 65_000), Records.end("A1", 1L << 53));
        times();
        hear(Records.end("A2", 70_000));
        assertEquals(List.of(119_999L), times());
        hear(at("A1", 200_000), at("A2", 200_000));
        assertEquals(List.of(179_999L), times(), "a new round is not late");
    }

    @Test
    void theLastMarkOfADrainedJobPasses() throws Exception {
        harness.processWatermark(new Watermark(77));
        harness.processWatermark(Watermark.MAX_WATERMARK);
        assertEquals(List.of(Long.MAX_VALUE), times());
    }
}
