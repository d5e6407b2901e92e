package io.speck.mqtt.testing;

import io.speck.link.testing.Wait;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.api.connector.source.SourceReader;

/** Collects what a reader gives to its task. */
public final class CollectingOutput implements ReaderOutput<byte[]> {
    public final List<String> records = new ArrayList<>();

    /** Polls a reader until it has given so many records in all. */
    public void pollUntil(SourceReader<byte[], ?> reader, int count) throws Exception {
        Wait.until(
                count + " records are taken",
                () -> {
                    if (records.size() < count) {
                        reader.pollNext(this);
                    }
                    return records.size() >= count;
                },
                () -> records);
    }

    @Override
    public void collect(byte[] record) {
        records.add(new String(record, StandardCharsets.UTF_8));
    }

    @Override
    public void collect(byte[] record, long timestamp) {
        collect(record);
    }

    @Override
    public void emitWatermark(Watermark watermark) {}

    @Override
    public void markIdle() {}

    @Override
    public void markActive() {}

    @Override
    public SourceOutput<byte[]> createOutputForSplit(String splitId) {
        return this;
    }

    @Override
    public void releaseOutputForSplit(String splitId) {}
}
