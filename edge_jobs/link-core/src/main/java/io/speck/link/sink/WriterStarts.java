package io.speck.link.sink;

import io.speck.link.protocol.SentNumber;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where a sink's committer finds up to which number its writer's records come from a checkpoint: an
 * earlier incarnation may have published these. What the writer has numbered since, nobody has.
 */
final class WriterStarts {
    private static final ConcurrentHashMap<String, SentNumber> OPEN = new ConcurrentHashMap<>();

    private WriterStarts() {}

    /**
     * A writer is opened.
     *
     * @param key of the link's window, see {@link ResendWindows#keyOf}
     * @param last the last number of its epoch that was given before
     */
    static void add(String key, SentNumber last) {
        OPEN.put(key, last);
    }

    static void remove(String key, SentNumber last) {
        OPEN.remove(key, last);
    }

    /** Returns the first message that the open writer has not numbered; null: it has all. */
    static SinkMessage findDoubtful(String key, List<SinkMessage> messages) {
        SentNumber last = OPEN.get(key);
        return messages.stream()
                .filter(message -> last == null || isBefore(message, last))
                .findFirst()
                .orElse(null);
    }

    private static boolean isBefore(SinkMessage message, SentNumber last) {
        return last.covers(message.epoch(), message.number(), message.number())
                || last.epoch() != message.epoch().epoch()
                || !last.producer().equals(message.epoch().producer());
    }
}
