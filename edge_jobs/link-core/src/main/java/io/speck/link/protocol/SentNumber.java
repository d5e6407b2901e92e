package io.speck.link.protocol;

import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The last number of a sink that a broker has taken, as {@code speck/sent/<client id>} says it: the
 * sink says so when the broker has all before it.
 */
public record SentNumber(String producer, long epoch, long number) implements SentRecords {
    private static final Pattern NUMBER =
            Pattern.compile(
                    "\"producer\":\"([^\"]*)\",\"epoch\":(\\d{1,18}),\"number\":(\\d{1,18})");

    private static final Pattern TOPIC =
            Pattern.compile("\"topic\":(\"(?:[^\"\\\\]|\\\\.)*\")");

    public static SentNumber of(ProducerEpoch epoch, long number) {
        return new SentNumber(epoch.producer(), epoch.epoch(), number);
    }

    /**
     * Parses what a sink announced. Links of one client id may have been at the same broker, so the
     * announcement names its topic.
     *
     * @return null when it is not what our sinks write, or of another topic
     */
    public static SentNumber parse(byte[] payload, String topic) {
        String text = new String(payload, StandardCharsets.UTF_8);
        Matcher named = TOPIC.matcher(text);
        if (named.find() && !named.group(1).equals(Json.quote(topic))) {
            return null;
        }
        Matcher number = NUMBER.matcher(text);
        return number.find()
                ? new SentNumber(
                        number.group(1),
                        Long.parseLong(number.group(2)),
                        Long.parseLong(number.group(3)))
                : null;
    }

    @Override
    public boolean covers(ProducerEpoch other, long first, long last) {
        return epoch == other.epoch() && number >= last && producer.equals(other.producer());
    }

    @Override
    public boolean reaches(ProducerEpoch other, long otherNumber) {
        return covers(other, otherNumber, otherNumber);
    }

    @Override
    public boolean mayHaveGaps() {
        return false;
    }

    public boolean covers(SentNumber other) {
        return epoch == other.epoch && number >= other.number && producer.equals(other.producer);
    }

    /**
     * Writes the announcement in the form that {@link #parse} reads.
     *
     * @param atMs when the sink says so, in milliseconds since 1970
     * @param unread how many records are held back because nobody has subscribed to the topic
     * @param report which records were refused, left out or lost, and the present problem
     * @param topic of the link
     * @return a JSON object in UTF-8
     */
    public byte[] toJson(long atMs, int unread, SinkReport report, String topic) {
        String head = "{\"v\":1,\"at\":%d,\"unread\":%d,%s\"topic\":%s,";
        return (head + "\"producer\":%s,\"epoch\":%d,\"number\":%d}")
                .formatted(
                        atMs,
                        unread,
                        report.toJsonFields(),
                        Json.quote(topic),
                        Json.quote(producer),
                        epoch,
                        number)
                .getBytes(StandardCharsets.UTF_8);
    }
}
