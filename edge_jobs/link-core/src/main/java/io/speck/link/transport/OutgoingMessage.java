package io.speck.link.transport;

import io.speck.link.protocol.Message;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.Stamp;

/** A message that is being sent, and what became of it. */
public class OutgoingMessage {
    public enum Outcome {
        /** Sent, and not answered yet; or not sent yet. */
        UNDER_WAY,
        DELIVERED,
        /** The broker does not take it now (not allowed, quota): worth another try. */
        REFUSED,
        /** Nobody has subscribed to the topic: the broker has dropped it. */
        UNREAD,
        /** The broker takes no message of this size, it says. */
        TOO_LARGE,
        /** The broker will never take it. */
        UNDELIVERABLE,
        /** The connection ended before the answer came. */
        CUT_OFF
    }

    private final ProducerEpoch epoch;
    private final long number;
    private final Message message;

    private volatile Object packet;

    private String problem; // published by the write of the outcome
    private volatile Outcome outcome = Outcome.UNDER_WAY;

    /**
     * @param epoch null: the message is sent without a stamp
     * @param number of its first record
     */
    public OutgoingMessage(ProducerEpoch epoch, long number, Message message) {
        this.epoch = epoch;
        this.number = number;
        this.message = message;
    }

    public final ProducerEpoch epoch() {
        return epoch;
    }

    /** Returns the number of its first record. */
    public final long number() {
        return number;
    }

    /** Returns the number of its last record. */
    public final long lastNumber() {
        return number + message.count() - 1;
    }

    public final Message message() {
        return message;
    }

    public final int payloadBytes() {
        return message.payload().length;
    }

    public final Outcome outcome() {
        return outcome;
    }

    /** Returns what the broker or the client library said about an outcome that is not delivery. */
    public final String problem() {
        return problem;
    }

    /** Returns what the client library was given, by which it names its results; or null. */
    public final Object packet() {
        return packet;
    }

    /** Remembers what the client library is given. */
    public final void setPacket(Object packet) {
        this.packet = packet;
    }

    /** Returns the stamp that it carries; it must have an epoch. */
    public final String stamp() {
        String first = epoch.stampPrefix() + number;
        return message.isPlain() ? first : Stamp.withCount(first, message.count());
    }

    final void begin() {
        outcome = Outcome.UNDER_WAY;
    }

    final void settle(Outcome result, String reason) {
        packet = null;
        problem = reason;
        outcome = result;
    }
}
