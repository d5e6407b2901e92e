package io.speck.spark;

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

/** A transport of which a class is missing. */
public final class BrokenTransport implements Transport {
    @Override
    public Set<String> schemes() {
        return Set.of("broken");
    }

    @Override
    public String example() {
        return "broken://host";
    }

    @Override
    public BrokerAddress parse(String address) {
        return BrokerAddress.ofNormalised(address);
    }

    @Override
    public LinkClient<? extends ReaderConnection> openReader(
            LinkConfig link, ReadingRange range, ReaderListener listener) {
        throw new NoClassDefFoundError("trial/Reader");
    }

    @Override
    public LinkClient<? extends WriterConnection> openWriter(
            LinkConfig link, WriterListener listener) {
        throw new NoClassDefFoundError("trial/Writer");
    }

    @Override
    public boolean keepsLogs() {
        return false;
    }

    @Override
    public String sizeSettings() {
        return "";
    }
}
