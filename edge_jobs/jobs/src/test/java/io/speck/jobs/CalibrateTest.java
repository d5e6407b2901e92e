package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.Parameters;
import org.apache.flink.streaming.api.operators.StreamFilter;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.junit.jupiter.api.Test;

class CalibrateTest {
    private static final String[] SHORT = {
        "--work", "50000", "--warm-up", "200ms", "--light", "300ms", "--full", "500ms"
    };

    @Test
    void measuresAUnitAloneAndThenWithoutAPause() throws Exception {
        Calibrate.Meter meter = new Calibrate.Meter(Parameters.of(SHORT));
        try (var harness = new OneInputStreamOperatorTestHarness<>(new StreamFilter<>(meter))) {
            harness.open();
            while (!meter.isDone()) {
                harness.processElement(1L, 0);
            }
            assertTrue(harness.extractOutputValues().isEmpty());
        }
        assertTrue(meter.light.units > 0);
        assertTrue(meter.full.units > 0);
        // of this thread's own CPU time: how busy the machine is does not matter much
        double light = meter.light.cpuNanos / (double) meter.light.units;
        double full = meter.full.cpuNanos / (double) meter.full.units;
        assertTrue(light > full / 3 && light < full * 3, light + " and " + full);
        assertTrue(meter.full.nanos > 0);
        assertTrue(meter.full.cpuNanos <= meter.full.nanos * 1.05);
    }

    @Test
    void refusesWhatMeasuresNothing() {
        assertEquals(
                "cannot use --work \"0\": it must be at least 1",
                assertThrows(
                                IllegalArgumentException.class,
                                () -> new Calibrate.Meter(Parameters.of("--work", "0")))
                        .getMessage());
        assertThrows(
                IllegalArgumentException.class,
                () -> new Calibrate.Meter(Parameters.of("--light", "0s")));
    }
}
