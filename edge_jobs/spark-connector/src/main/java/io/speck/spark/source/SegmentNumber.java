package io.speck.spark.source;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** Up to which segment of the spool a query has read; 0: nothing. */
final class SegmentNumber extends Offset {
    private static final Pattern JSON = Pattern.compile("\\{\"segment\":(\\d+)}");
    static final SegmentNumber NONE = new SegmentNumber(0);

    private final long number;

    SegmentNumber(long number) {
        this.number = number;
    }

    static SegmentNumber parse(String json) {
        Matcher matcher = JSON.matcher(json.trim());
        if (!matcher.matches()) {
            throw new IllegalArgumentException(
                    "cannot read the offset %s: it is of no speck source".formatted(json));
        }
        return new SegmentNumber(Long.parseLong(matcher.group(1)));
    }

    long number() {
        return number;
    }

    @Override
    public String json() {
        return "{\"segment\":%d}".formatted(number);
    }
}
