package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class BurnTest {
    private static int outputs(double selectivity, int records) {
        Burn.Burner burner = new Burn.Burner(0, 0, selectivity);
        burner.open(null);
        List<byte[]> out = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            burner.flatMap(new byte[] {1}, new ListCollector<>(out));
        }
        return out.size();
    }

    @ParameterizedTest
    @CsvSource({"1, 1000", "0, 0", "0.3, 300", "0.1, 100", "0.7, 700", "2.5, 2500", "0.001, 1"})
    void passesOnItsShare(double selectivity, int expected) {
        assertEquals(expected, outputs(selectivity, 1000));
    }

    @Test
    void spreadsItsShareEvenly() {
        assertEquals(0, outputs(0.3, 3));
        assertEquals(1, outputs(0.3, 4));
        assertEquals(2, outputs(0.3, 7));
        assertEquals(3, outputs(0.3, 10));
    }

    @ParameterizedTest
    @CsvSource({"5, 20000", "1, 50000", "2000, 50"})
    void usesItsCpuTimeOnAverage(double micros, int records) {
        Burn.Burner burner = new Burn.Burner(micros, 0, 0);
        burner.open(null);
        ListCollector<byte[]> nothing = new ListCollector<>(new ArrayList<>());
        long start = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        for (int i = 0; i < records; i++) {
            burner.flatMap(new byte[] {1}, nothing);
        }
        double used = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - start;
        // CPU time of this very thread: it does not depend on how busy the machine is
        double wanted = micros * 1000 * records;
        assertTrue(used > 0.95 * wanted && used < 1.5 * wanted, used + " for " + wanted);
        assertTrue(burner.noise() != 0);
    }

    @Test
    void doesItsWorkForEachRecord() {
        Burn.Burner burner = new Burn.Burner(0, 1000, 0);
        burner.open(null);
        ListCollector<byte[]> nothing = new ListCollector<>(new ArrayList<>());
        for (int i = 0; i < 3; i++) {
            burner.flatMap(new byte[] {1}, nothing);
        }
        assertEquals(Burn.Burner.work(0, 3000), burner.noise());
        assertEquals(1442695040888963407L, Burn.Burner.work(0, 1));
        assertEquals(7, Burn.Burner.work(7, 0));
    }

    @Test
    void refusesWhatMakesNoSense() {
        assertEquals(
                "cannot use --selectivity \"-0.5\": it must be 0 to 1000",
                assertThrows(
                                IllegalArgumentException.class,
                                () -> new Burn.Burner(0, 0, -0.5))
                        .getMessage());
        assertEquals(
                "cannot use --work \"-1\": it must be 0 to 1000000000000",
                assertThrows(
                                IllegalArgumentException.class, () -> new Burn.Burner(0, -1, 1))
                        .getMessage());
        assertThrows(IllegalArgumentException.class, () -> new Burn.Burner(Double.NaN, 0, 1));
    }
}
