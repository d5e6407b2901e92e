package io.speck.link.sink;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;

/**
 * The messages of a sink that have no final outcome: those that were sent, those that the broker
 * has refused, and those that wait to be sent; each in the order of their numbers. Not thread-safe.
 */
final class SendQueue {
    private final ArrayDeque<SinkMessage> sentMessages = new ArrayDeque<>();
    private final ArrayDeque<SinkMessage> refusedMessages = new ArrayDeque<>();
    private final ArrayDeque<SinkMessage> waitingMessages = new ArrayDeque<>();
    private long bytes;

    int size() {
        return sentMessages.size() + refusedMessages.size() + waitingMessages.size();
    }

    /** Returns how much payload they have together. */
    long bytes() {
        return bytes;
    }

    /** Counts the records of all of them. */
    long countRecords() {
        return countRecords(sentMessages)
                + countRecords(refusedMessages)
                + countRecords(waitingMessages);
    }

    static long countRecords(Collection<SinkMessage> messages) {
        return messages.stream().mapToLong(SinkMessage::count).sum();
    }

    /** Forgets a message that has its final outcome and is in none of the three any more. */
    void settle(SinkMessage message) {
        bytes -= message.payloadBytes();
    }

    // ---- waiting

    boolean hasWaiting() {
        return !waitingMessages.isEmpty();
    }

    void add(SinkMessage message) {
        waitingMessages.add(message);
        bytes += message.payloadBytes();
    }

    /** Puts messages before all that wait, in their order. */
    void addFirst(List<SinkMessage> messages) {
        for (int i = messages.size() - 1; i >= 0; i--) {
            waitingMessages.addFirst(messages.get(i));
            bytes += messages.get(i).payloadBytes();
        }
    }

    /** Returns the first that waits; null: there is none. */
    SinkMessage firstWaiting() {
        return waitingMessages.peek();
    }

    /** Takes the first that waits; it is to be sent, or settled. Null when there is none. */
    SinkMessage takeFirst() {
        return waitingMessages.poll();
    }

    /** Removes what the resend window has, too: it comes out of there once more. */
    void removeKept() {
        waitingMessages.removeIf(
                message -> {
                    if (message.kept) {
                        settle(message);
                    }
                    return message.kept;
                });
    }

    // ---- sent

    int sentCount() {
        return sentMessages.size();
    }

    long countSentRecords() {
        return countRecords(sentMessages);
    }

    /** Counts those that never had an answer, be it over an earlier connection. */
    long countNeverAnswered() {
        return sentMessages.stream().filter(message -> !message.kept).count();
    }

    void addSent(SinkMessage message) {
        sentMessages.add(message);
    }

    /** Returns the first that was sent; null: there is none. */
    SinkMessage firstSent() {
        return sentMessages.peek();
    }

    /** Removes the first that was sent; it is to be refused, or settled. */
    void removeFirstSent() {
        sentMessages.poll();
    }

    /** Lets all that were sent wait again, before all that wait already. */
    void requeueSent() {
        while (!sentMessages.isEmpty()) {
            waitingMessages.addFirst(sentMessages.pollLast());
        }
    }

    /** Settles all that were sent. */
    void clearSent() {
        sentMessages.forEach(this::settle);
        sentMessages.clear();
    }

    // ---- refused

    long countRefusedRecords() {
        return countRecords(refusedMessages);
    }

    boolean hasRefused() {
        return !refusedMessages.isEmpty();
    }

    void addRefused(SinkMessage message) {
        refusedMessages.add(message);
    }

    /** In the place of a message that was refused and is settled. */
    void addRefused(List<SinkMessage> parts) {
        parts.forEach(part -> bytes += part.payloadBytes());
        refusedMessages.addAll(parts);
    }

    /** Returns the first that was refused; null: there is none. */
    SinkMessage firstRefused() {
        return refusedMessages.peek();
    }

    /** Lets all that were refused wait again, before all that wait already. */
    void requeueRefused() {
        while (!refusedMessages.isEmpty()) {
            waitingMessages.addFirst(refusedMessages.pollLast());
        }
    }
}
