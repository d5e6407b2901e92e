package io.speck.link.transport;

import io.speck.link.protocol.Message;

/**
 * Reads the messages that a connection received. They are the client library's own objects, of
 * which each protocol version has another: wrapping each would cost more than reading it.
 */
public interface IncomingMessages {
    byte[] payloadOf(Object message);

    /** Returns how many bytes the message's payload has. */
    int sizeOf(Object message);

    /** Returns how many bytes the packet had that brought the message. */
    int packetSizeOf(Object message);

    /** Returns the message's stamp, or null. */
    String stampOf(Object message);

    /** Returns how the message's records lie in its payload. */
    Message.Format formatOf(Object message);

    /** Whether it is no message of the link, but a mark of the control plane. */
    boolean isMark(Object message);

    /** Whether the broker waits for an acknowledgement: not if it was published at QoS 0. */
    boolean isAcknowledged(Object message);
}
