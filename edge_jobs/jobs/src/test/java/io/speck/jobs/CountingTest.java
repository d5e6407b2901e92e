package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.operators.KeyedProcessOperator;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.junit.jupiter.api.Test;

class CountingTest {
    private static KeyedOneInputStreamOperatorTestHarness<String, byte[], byte[]> harness()
            throws Exception {
        return new KeyedOneInputStreamOperatorTestHarness<>(
                new KeyedProcessOperator<>(new Counting.Counter()), Counting::keyOf, Types.STRING);
    }

    private static List<String> put(
            KeyedOneInputStreamOperatorTestHarness<String, byte[], byte[]> harness,
            String... records)
            throws Exception {
        for (String record : records) {
            harness.processElement(Records.bytes(record), 0);
        }
        List<String> out = harness.extractOutputValues().stream().map(String::new).toList();
        harness.getOutput().clear();
        return out;
    }

    @Test
    void countsByKeyAndGoesOnFromItsState() throws Exception {
        OperatorSubtaskState state;
        try (var harness = harness()) {
            harness.open();
            assertEquals(
                    List.of(
                            "{\"n\":1,\"k\":\"a\",\"count\":1}",
                            "{\"n\":2,\"k\":\"b\",\"count\":1}",
                            "{\"n\":3,\"k\":\"a\",\"count\":2}"),
                    put(
                            harness,
                            "{\"n\":1,\"k\":\"a\"}",
                            "{\"n\":2,\"k\":\"b\"}",
                            "{\"n\":3,\"k\":\"a\"}"));
            state = harness.snapshot(1, 1);
        }
        try (var harness = harness()) {
            harness.initializeState(state);
            harness.open();
            assertEquals(
                    List.of("{\"k\":\"a\",\"count\":3}"), put(harness, "{\"k\":\"a\"}"));
        }
    }

    @Test
    void dropsWhatIsNoObjectAndCountsWithoutAKey() throws Exception {
        try (var harness = harness()) {
            harness.open();
            assertEquals(
                    List.of("{\"n\":1,\"count\":1}", "{\"n\":2,\"count\":2}"),
                    put(harness, "{\"n\":1}", "[1]", "nonsense", "{\"n\":2}"));
        }
    }
}
