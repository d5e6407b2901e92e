package io.speck.link.testing;

/** A real broker of a transport, which the contract's tests start, kill and let stand still. */
public interface TestBroker extends AutoCloseable {
    String address();

    /** Makes a place for a reader on a link, and the link, as the control plane does. */
    void reserve(String clientId, String topic) throws Exception;

    /** Publishes a record without a number, as outside publishers do. */
    void publish(String topic, String record) throws Exception;

    /** Returns how many records a reader says that it has taken; -1: it has said nothing. */
    long taken(String clientId, String topic) throws Exception;

    /** As a loss of power does, as far as a process can be treated so. */
    void kill() throws Exception;

    void start() throws Exception;

    /** Lets it stand still, with its connections open. */
    void freeze() throws Exception;

    void thaw() throws Exception;

    @Override
    void close() throws Exception;
}
