package io.speck.mqtt.testing;

import io.speck.link.protocol.BatchBuilder;
import io.speck.link.protocol.Batching;
import io.speck.link.protocol.Message;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.IntStream;

/** Records r1, r2 and so on. */
public final class TestRecords {
    private TestRecords() {}

    public static List<String> records(int from, int to) {
        return IntStream.rangeClosed(from, to).mapToObj(i -> "r" + i).toList();
    }

    /** Builds one message of them. */
    public static Message batchOf(boolean zstd, int from, int to) {
        return batchOf(
                zstd,
                records(from, to).stream()
                        .map(record -> record.getBytes(StandardCharsets.UTF_8))
                        .toList());
    }

    public static Message batchOf(boolean zstd, List<byte[]> records) {
        BatchBuilder builder = new BatchBuilder(new Batching(Message.MAX_RECORDS, 0, zstd));
        records.forEach(builder::add);
        return builder.build();
    }
}
