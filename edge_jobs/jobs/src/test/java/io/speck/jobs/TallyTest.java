package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.util.ListCollector;
import org.junit.jupiter.api.Test;

class TallyTest {
    @Test
    void countsWhatIsMissingRepeatedAndLate() {
        AtomicLong now = new AtomicLong(5000);
        Tally.Counter counter = new Tally.Counter(now::get);
        counter.open(null);
        List<byte[]> out = new ArrayList<>();
        for (long id : new long[] {1, 2, 2, 5}) {
            String record = "{\"id\":" + id + ",\"time_ms\":4990,\"x\":1}";
            counter.flatMap(Records.bytes(record), new ListCollector<>(out));
        }
        assertEquals(0, out.size());
        now.set(5250);
        counter.flatMap(Records.bytes("{\"id\":6,\"time_ms\":5300}"), new ListCollector<>(out));
        assertEquals(
                "{\"at_ms\":5250,\"newest_ms\":5300,\"records\":5,\"missing\":2,\"repeated\":1,\"bytes\":139,"
                        + "\"marks\":0,\"late\":{\"0\":1,\"10\":4}}",
                Records.text(out.get(0)));
        now.set(5255);
        counter.flatMap(Records.bytes("{\"end\":false,\"id\":7}"), new ListCollector<>(out));
        assertTrue(Records.text(out.get(1)).contains("\"missing\":3,"), Records.text(out.get(1)));
        now.set(5260);
        counter.flatMap(Records.bytes("{\"end\":true,\"id\":8}"), new ListCollector<>(out));
        assertEquals(
                "{\"at_ms\":5260,\"newest_ms\":5300,\"records\":5,\"missing\":4,\"repeated\":1,\"bytes\":139,"
                        + "\"marks\":2,\"late\":{\"0\":1,\"10\":4}}",
                Records.text(out.get(2)));
    }
}
