package io.speck.kafka;

import io.speck.link.transport.TakenReport;

/** What a reader says of itself beside its place: a small JSON object. */
final class TakenMetadata {
    /** Brokers take 4096 bytes by default. */
    private static final int MAX_BYTES = 4000;

    private TakenMetadata() {}

    static String write(TakenReport report, String topicId) {
        String head =
                "{\"v\":1,\"id\":\"%s\",\"at\":%d,\"checkpoint\":%d,\"messages\":%d"
                        .formatted(
                                topicId,
                                report.atMs(),
                                report.checkpoint(),
                                report.taken().messages());
        if (report.dropped() > 0) {
            head += ",\"dropped\":" + report.dropped();
        }
        String missing = report.taken().missingToJson(MAX_BYTES - head.length());
        return head + (missing.equals("{}") ? "" : ",\"missing\":" + missing) + "}";
    }

    /** Whether the place is one in the log of that id, as far as is said. */
    static boolean isOf(String metadata, String topicId) {
        int at = metadata == null ? -1 : metadata.indexOf("\"id\":\"");
        return at < 0 || metadata.startsWith(topicId + '"', at + "\"id\":\"".length());
    }
}
