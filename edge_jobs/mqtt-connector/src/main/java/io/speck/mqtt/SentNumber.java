package io.speck.mqtt;

import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Up to where a broker has taken a sink's records: what {@code speck/sent/<client id>} says. */
record SentNumber(String producer, long epoch, long number) {
    private static final Pattern JSON =
            Pattern.compile(
                    "\"producer\":\"([^\"]*)\",\"epoch\":(\\d{1,18}),\"number\":(\\d{1,18})");

    private static final Pattern TOPIC =
            Pattern.compile("\"topic\":(\"(?:[^\"\\\\]|\\\\.)*\")");

    static SentNumber of(OutRecord record) {
        return new SentNumber(record.series.producer(), record.series.epoch(), record.last());
    }

    /** Everything before a record of the same epoch. */
    static SentNumber before(OutRecord record) {
        return new SentNumber(record.series.producer(), record.series.epoch(), record.number - 1);
    }

    /**
     * Null when it is not what our sinks write, or of another topic: links of one client id may have
     * been at the same broker.
     */
    static SentNumber parse(byte[] payload, String topic) {
        String text = new String(payload, StandardCharsets.UTF_8);
        Matcher of = TOPIC.matcher(text);
        if (of.find() && !of.group(1).equals(Json.quoted(topic))) {
            return null;
        }
        Matcher found = JSON.matcher(text);
        return found.find()
                ? new SentNumber(
                        found.group(1),
                        Long.parseLong(found.group(2)),
                        Long.parseLong(found.group(3)))
                : null;
    }

    boolean covers(OutRecord record) {
        return record.series != null
                && epoch == record.series.epoch()
                && number >= record.last()
                && producer.equals(record.series.producer());
    }

    boolean covers(SentNumber other) {
        return epoch == other.epoch && number >= other.number && producer.equals(other.producer);
    }

    /**
     * @param topic of the link
     * @param unread how many records are held back, since nobody has subscribed to the topic
     */
    byte[] toJson(long atMs, int unread, String topic) {
        String head = "{\"v\":1,\"at\":%d,\"unread\":%d,\"topic\":%s,";
        return (head + "\"producer\":%s,\"epoch\":%d,\"number\":%d}")
                .formatted(
                        atMs, unread, Json.quoted(topic), Json.quoted(producer), epoch, number)
                .getBytes(StandardCharsets.UTF_8);
    }
}
