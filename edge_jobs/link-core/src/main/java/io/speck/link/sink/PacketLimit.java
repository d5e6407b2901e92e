package io.speck.link.sink;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.link.transport.WriterConnection;
import java.io.IOException;

/**
 * Finds out how large a record the broker of a sink takes, for a sink that numbers records before
 * it has a connection for them. Asks once, over a connection that is closed when the answer is
 * there.
 *
 * <p>Used by the task's thread, but for the callbacks.
 */
final class PacketLimit implements AutoCloseable {
    private final LinkConfig link;
    private final LinkClient<? extends WriterConnection> client;
    private volatile WriterConnection answer; // the connection that knows; null: not yet
    private boolean closed;

    PacketLimit(LinkConfig link) {
        this.link = link;
        LinkConfig probe =
                new LinkConfig(
                        link.broker(),
                        link.topic(),
                        link.clientId() + "-limit", // the sink's own id has another connection
                        link.delivery(),
                        1);
        this.client =
                Transports.of(link.broker())
                        .openWriter(probe, (connection, sendMaximum) -> answer = connection);
    }

    /** Waits a while for the answer. A broker that is away gives it when it is back. */
    void ask() {
        client.start();
        client.awaitReady();
        closeWhenAnswered();
    }

    /**
     * Checks the size of a record before it gets a number.
     *
     * @throws IOException when the broker is known not to take such a record: to give it a number
     *     would leave a hole, and to leave it out would lose it
     */
    void check(ProducerEpoch epoch, int recordBytes) throws IOException {
        closeWhenAnswered();
        int most = maxPayload(epoch);
        if (recordBytes > most) {
            throw new IOException(describeTooLarge(link, recordBytes, most));
        }
    }

    /** Returns why the broker could not be asked yet; empty: it was. Called by any thread. */
    String problem() {
        return client.problem();
    }

    /** Returns how large a payload of the epoch may be, as far as is known. */
    int maxPayload(ProducerEpoch epoch) {
        WriterConnection known = answer;
        return known == null ? Integer.MAX_VALUE : known.maxPayload(epoch);
    }

    static String describeTooLarge(LinkConfig link, int payloadBytes, int maxBytes) {
        return ("cannot publish a record of %d bytes to %s: its broker takes at most %d bytes on"
                        + " this topic; raise %s, or have"
                        + " such records left out with --max-record-bytes %d")
                .formatted(
                        payloadBytes,
                        link,
                        maxBytes,
                        Transports.of(link.broker()).sizeSettings(),
                        maxBytes);
    }

    private void closeWhenAnswered() {
        if (answer != null) {
            close();
        }
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            client.close();
        }
    }
}
