package io.speck.mqtt;

import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.connector.sink2.InitContext;

/**
 * Where a sink's writer finds what its committer has published of late, to put it into checkpoints:
 * the two are operators of one chain, and neither is given the other.
 */
final class Windows {
    private static final ConcurrentHashMap<String, ResendWindow> OPEN = new ConcurrentHashMap<>();

    private Windows() {}

    /** What stands for a sink of a job here. */
    static String key(InitContext context, LinkConfig link) {
        return context.getJobInfo().getJobId() + "/" + link.clientId();
    }

    static void open(String key, ResendWindow window) {
        OPEN.put(key, window);
    }

    static void close(String key, ResendWindow window) {
        OPEN.remove(key, window);
    }

    /** Nothing when its committer runs elsewhere, which no job of ours lets it. */
    static List<Run> snapshot(String key) {
        ResendWindow window = OPEN.get(key);
        return window == null ? List.of() : window.snapshot(System.nanoTime());
    }
}
