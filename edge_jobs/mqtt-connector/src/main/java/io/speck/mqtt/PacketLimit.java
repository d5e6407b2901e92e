package io.speck.mqtt;

import java.io.IOException;

/**
 * How large a record the broker of a sink takes, for a sink that numbers records before it has a
 * connection for them. Asked once, over a connection that is closed when the answer is there.
 *
 * <p>Used by the task's thread, but for the callbacks.
 */
final class PacketLimit implements MqttConnection.Events, AutoCloseable {
    private final LinkConfig link;
    private final Supervisor supervisor;
    private volatile MqttConnection answered;
    private boolean closed;

    PacketLimit(LinkConfig link) {
        this.link = link;
        LinkConfig asking =
                new LinkConfig(
                        link.broker(),
                        link.topic(),
                        link.clientId() + "-limit", // the sink's own id has another connection
                        link.delivery(),
                        1);
        this.supervisor = Supervisor.forWriter(asking, this);
    }

    /** Waits a while for the answer. A broker that is away tells it when it is back. */
    void ask() {
        supervisor.start();
        supervisor.awaitReady();
        closeWhenAnswered();
    }

    /**
     * @throws IOException when the broker is known not to take such a record: to give it a number
     *     would leave a hole, and to leave it out would lose it
     */
    void check(Series series, int payloadBytes) throws IOException {
        closeWhenAnswered();
        MqttConnection by = answered;
        if (by != null && !by.fits(series, payloadBytes)) {
            throw new IOException(tooLarge(link, payloadBytes, by.mostPayload(series)));
        }
    }

    /** How large a record of the series may be, as far as is known. */
    int mostPayload(Series series) {
        MqttConnection by = answered;
        return by == null ? Integer.MAX_VALUE : by.mostPayload(series);
    }

    static String tooLarge(LinkConfig link, int payloadBytes, int mostBytes) {
        return ("cannot publish a record of %d bytes to %s: its broker takes at most %d bytes on"
                        + " this topic; raise its max_packet_size, or have such records left out"
                        + " with --max-record-bytes %d")
                .formatted(payloadBytes, link, mostBytes, mostBytes);
    }

    private void closeWhenAnswered() {
        if (answered != null) {
            close();
        }
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            supervisor.close();
        }
    }

    // ---- on the network thread

    @Override
    public void ready(MqttConnection ready, boolean sessionPresent, int sendMaximum) {
        answered = ready;
    }

    @Override
    public void arrived(MqttConnection from) {}

    @Override
    public void settled(MqttConnection from) {}

    @Override
    public void ended(MqttConnection lost, Throwable cause) {}
}
