package io.speck.kafka;

import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.ReaderListener;
import io.speck.link.transport.ReadingRange;
import io.speck.link.transport.Transport;
import io.speck.link.transport.WriterConnection;
import io.speck.link.transport.WriterListener;
import java.util.Set;

/** Links over Kafka. */
public final class KafkaTransport implements Transport {
    @Override
    public Set<String> schemes() {
        return KafkaAddress.SCHEMES;
    }

    @Override
    public String example() {
        return KafkaAddress.EXAMPLE;
    }

    @Override
    public BrokerAddress parse(String address) {
        return KafkaAddress.parse(address);
    }

    @Override
    public LinkClient<? extends ReaderConnection> openReader(
            LinkConfig link, ReadingRange range, ReaderListener listener) {
        LinkTopic.checkName(link);
        Progress progress = new Progress();
        return new KafkaClient<>(
                link, "read", watch -> new LogReader(link, range, progress, listener, watch));
    }

    @Override
    public LinkClient<? extends WriterConnection> openWriter(
            LinkConfig link, WriterListener listener) {
        LinkTopic.checkName(link);
        return new KafkaClient<>(link, "write to", watch -> new LogWriter(link, listener, watch));
    }

    @Override
    public boolean keepsLogs() {
        return true;
    }

    @Override
    public String sizeSettings() {
        return "its max.message.bytes";
    }
}
