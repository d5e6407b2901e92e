package io.speck.link.sink;

import io.speck.link.transport.LinkConfig;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where a sink's writer finds the window of its committer, to put it into checkpoints: the two are
 * operators of one chain, and neither is given the other.
 */
final class ResendWindows {
    private static final ConcurrentHashMap<String, ResendWindow> OPEN = new ConcurrentHashMap<>();

    private ResendWindows() {}

    /** Returns the name of a link's window. */
    static String keyOf(String sinkKey, LinkConfig link) {
        return sinkKey + "/" + link.clientId();
    }

    static void add(String key, ResendWindow window) {
        OPEN.put(key, window);
    }

    static void remove(String key, ResendWindow window) {
        OPEN.remove(key, window);
    }

    /** Returns nothing when the committer runs elsewhere, which no job of ours lets it. */
    static List<NumberedMessages> snapshot(String key) {
        ResendWindow window = OPEN.get(key);
        return window == null ? List.of() : window.snapshot(System.nanoTime());
    }
}
