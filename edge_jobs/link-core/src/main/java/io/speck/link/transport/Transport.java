package io.speck.link.transport;

import java.util.Set;

/**
 * A kind of broker. Implementations are found by {@link java.util.ServiceLoader}, have a public
 * constructor without arguments, and are thread-safe.
 */
public interface Transport {
    /** Returns the schemes of its addresses, in lower case. */
    Set<String> schemes();

    /** Returns what its addresses look like, for people: {@code tcp://host:port}, for instance. */
    String example();

    /**
     * Parses an address with one of its schemes, and normalises it.
     *
     * @throws IllegalArgumentException when it is none
     */
    BrokerAddress parse(String address);

    /**
     * Creates the client of a link's reader; it connects when it is started.
     *
     * @throws IllegalArgumentException if the broker cannot have such a topic
     */
    LinkClient<? extends ReaderConnection> openReader(
            LinkConfig link, ReadingRange range, ReaderListener listener);

    /**
     * Creates the client of a link's writer; it connects when it is started.
     *
     * @throws IllegalArgumentException if the broker cannot have such a topic
     */
    LinkClient<? extends WriterConnection> openWriter(LinkConfig link, WriterListener listener);

    /**
     * Whether its brokers keep logs, in which a reader has a place: what readers have taken is then
     * said in positions of the log, not in numbers of producers.
     */
    boolean keepsLogs();

    /** Returns what to change at a broker that takes no larger records, for people. */
    String sizeSettings();
}
