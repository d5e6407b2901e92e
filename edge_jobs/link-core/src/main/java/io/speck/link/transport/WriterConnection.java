package io.speck.link.transport;

import io.speck.link.protocol.ProducerEpoch;
import java.util.concurrent.CompletableFuture;

/** A connection over which a link is written. */
public interface WriterConnection extends LinkConnection {
    /**
     * Sends a message, whose outcome is reported later, in the order of sending. Only by one thread,
     * only while {@link #isReady}.
     *
     * @return how many bytes it takes on the wire
     */
    int send(OutgoingMessage message);

    /** Returns how many messages have an outcome, as of the last {@code onOutcomes}. */
    long settledCount();

    /**
     * Returns the largest payload that the broker takes; known when the connection is ready.
     *
     * @param epoch of the message's number; null: it has none
     */
    int maxPayload(ProducerEpoch epoch);

    /** Whether the broker takes a message of this size. */
    default boolean fits(OutgoingMessage message) {
        int bytes = message.payloadBytes() + message.message().propertyBytes();
        return bytes <= maxPayload(message.epoch());
    }

    /** Whether it takes many records as one message; else they go one by one. */
    default boolean takesBatches() {
        return true;
    }

    /** The broker takes no message of this size, though it had not said so. */
    void noteTooLarge(OutgoingMessage message);

    /** Returns whether it ended because of a message that was sent; known when it has ended. */
    Guilt guilt();

    /**
     * Reports up to which number the broker has everything, where the next writer of that client id
     * and topic finds it: {@link WriterListener#onConfirmed}.
     *
     * @param json what {@code SentNumber} writes
     * @return completes with null when the broker has it, with the reason if it refuses it;
     *     exceptionally when the connection ended before
     */
    CompletableFuture<String> reportSent(byte[] json);
}
