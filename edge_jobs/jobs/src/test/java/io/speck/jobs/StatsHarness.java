package io.speck.jobs;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.operators.KeyedProcessOperator;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;

/** A keyed function under test, with its output as text. */
final class StatsHarness<K> implements AutoCloseable {
    private final KeyedOneInputStreamOperatorTestHarness<K, Detection, byte[]> harness;

    StatsHarness(
            KeyedProcessFunction<K, Detection, byte[]> function,
            KeySelector<Detection, K> key,
            TypeInformation<K> keyType,
            OperatorSubtaskState restored)
            throws Exception {
        harness =
                new KeyedOneInputStreamOperatorTestHarness<>(
                        new KeyedProcessOperator<>(function), key, keyType);
        if (restored != null) {
            harness.initializeState(restored);
        }
        harness.open();
    }

    void hear(Detection... detections) throws Exception {
        for (Detection detection : detections) {
            harness.processElement(detection, detection.timeMs);
        }
    }

    void time(long watermark) throws Exception {
        harness.processWatermark(watermark);
    }

    /** What was emitted since the last call. */
    List<String> results() {
        List<String> results = new ArrayList<>();
        harness.extractOutputValues().forEach(record -> results.add(Records.text(record)));
        harness.getOutput().clear();
        return results;
    }

    int keyedStateEntries() {
        return harness.numKeyedStateEntries();
    }

    int timers() {
        return harness.numEventTimeTimers();
    }

    OperatorSubtaskState snapshot() throws Exception {
        return harness.snapshot(1, 1);
    }

    @Override
    public void close() throws Exception {
        harness.close();
    }
}
