package io.speck.link.protocol;

import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;
import java.util.function.ToLongFunction;

/** Writes the text of the retained message on {@code speck/taken/<client id>}. */
final class TakenNumbersJson {
    /** How many ranges a retained message holds: no broker takes a message of any size. */
    static final int MAX_RANGES = 5 * NumberRanges.MAX_RANGES;

    private final Map<String, ProducerNumbers> producers;
    private final StringBuilder json = new StringBuilder(128);

    TakenNumbersJson(Map<String, ProducerNumbers> producers) {
        this.producers = producers;
    }

    String write(long atMs, long checkpoint, long lost, long dropped, long messages, String mark) {
        json.append("{\"v\":1,\"at\":").append(atMs);
        json.append(",\"checkpoint\":").append(checkpoint);
        json.append(",\"taken\":{");
        appendNumbers(NumberRanges::contiguous);
        json.append("},\"missing\":{");
        appendNumbers(NumberRanges::missing);
        json.append('}');
        appendAbove();
        json.append(",\"lost\":").append(lost);
        if (dropped > 0) {
            json.append(",\"dropped\":").append(dropped);
        }
        json.append(",\"messages\":").append(messages);
        if (mark != null) {
            json.append(",\"mark\":").append(Json.quote(mark));
        }
        return json.append('}').toString();
    }

    String writeMissing(int maxBytes) {
        String all = "";
        for (Map.Entry<String, ProducerNumbers> producer : producers.entrySet()) {
            StringBuilder holes = new StringBuilder();
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().epochs().entrySet()) {
                if (epoch.getValue().missing() > 0) {
                    holes.append(holes.length() == 0 ? "" : ",").append('"');
                    holes.append(epoch.getKey()).append("\":").append(epoch.getValue().missing());
                }
            }
            if (holes.length() > 0) { // the last one heard comes first
                String one = Json.quote(producer.getKey()) + ":{" + holes + "}";
                all = all.isEmpty() ? one : one + "," + all;
            }
        }
        while (all.getBytes(StandardCharsets.UTF_8).length + 2 > maxBytes) {
            int last = all.lastIndexOf("},\"");
            all = last < 0 ? "" : all.substring(0, last + 1);
        }
        return "{" + all + "}";
    }

    private void appendNumbers(ToLongFunction<NumberRanges> number) {
        String producerComma = "";
        for (Map.Entry<String, ProducerNumbers> producer : producers.entrySet()) {
            json.append(producerComma).append(Json.quote(producer.getKey())).append(":{");
            String epochComma = "";
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().epochs().entrySet()) {
                json.append(epochComma).append('"').append(epoch.getKey()).append("\":");
                json.append(number.applyAsLong(epoch.getValue()));
                epochComma = ",";
            }
            json.append('}');
            producerComma = ",";
        }
    }

    /**
     * Appends the ranges above the first hole, if there are any. Where they are too many, those of
     * the producers that were silent for longest are left out.
     */
    private void appendAbove() {
        int left = producers.values().stream().mapToInt(ProducerNumbers::rangesAbove).sum();
        if (left == 0) {
            return;
        }
        json.append(",\"above\":{");
        String comma = "";
        for (Map.Entry<String, ProducerNumbers> producer : producers.entrySet()) {
            int here = producer.getValue().rangesAbove();
            if (here > 0 && left <= MAX_RANGES) {
                json.append(comma).append(Json.quote(producer.getKey())).append(":{");
                appendAbove(producer.getValue());
                json.append('}');
                comma = ",";
            }
            left -= here;
        }
        json.append('}');
    }

    private void appendAbove(ProducerNumbers producer) {
        String comma = "";
        for (Map.Entry<Long, NumberRanges> epoch : producer.epochs().entrySet()) {
            if (epoch.getValue().rangesAbove() > 0) {
                json.append(comma).append('"').append(epoch.getKey()).append("\":[");
                appendRanges(epoch.getValue().above().iterator());
                json.append(']');
                comma = ",";
            }
        }
    }

    private void appendRanges(Iterator<HandOver.Range> ranges) {
        while (ranges.hasNext()) {
            HandOver.Range range = ranges.next();
            json.append('[').append(range.first()).append(',').append(range.last()).append(']');
            json.append(ranges.hasNext() ? "," : "");
        }
    }
}
