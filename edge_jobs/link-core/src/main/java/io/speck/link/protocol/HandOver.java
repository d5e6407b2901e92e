package io.speck.link.protocol;

import java.io.Serializable;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * What the previous reader of a link has taken: argument {@code --taken}.
 *
 * <p>Its text consists of entries joined by {@code ;}, each {@code <producer>/<epoch>/<upto>} or
 * {@code <producer>/<epoch>/<upto>/<first>-<last>,<first>-<last>} and so on. The producer's name is
 * percent-encoded.
 *
 * @param entries those of one producer in the order in which its epochs were met
 */
public record HandOver(List<Entry> entries) implements Serializable {
    public static final HandOver NONE = new HandOver(List.of());

    /** In one epoch of a producer, all numbers from 1 to {@code upTo}, and the ranges above. */
    public record Entry(String producer, long epoch, long upTo, List<Range> above)
            implements Serializable {}

    public record Range(long first, long last) implements Serializable {}

    /**
     * Parses the argument; an empty text has no entries.
     *
     * @throws IllegalArgumentException naming the argument, and the entry that cannot be read
     */
    public static HandOver parse(String text) {
        return parse("taken", text);
    }

    /** The same of another argument that is written like it. */
    static HandOver parse(String argument, String text) {
        List<Entry> entries = new ArrayList<>();
        for (String entry : text.split(";")) {
            try {
                if (!entry.isEmpty()) {
                    entries.add(parseEntry(entry));
                }
            } catch (IllegalArgumentException e) {
                throw refuse(argument, entry, e);
            }
        }
        return new HandOver(List.copyOf(entries));
    }

    /** Returns up to where a part of a log was taken; 0: nothing of it is said. */
    public long findPosition(String series, long epoch) {
        return entries.stream()
                .filter(entry -> entry.epoch() == epoch && entry.producer().equals(series))
                .mapToLong(Entry::upTo)
                .max()
                .orElse(0);
    }

    private static Entry parseEntry(String text) {
        String[] parts = text.split("/", -1);
        if (parts.length < 3 || parts.length > 4) {
            throw new IllegalArgumentException("3 or 4 parts expected");
        }
        List<Range> above = new ArrayList<>();
        if (parts.length == 4) {
            for (String range : parts[3].split(",", -1)) {
                above.add(parseRange(range));
            }
        }
        return new Entry(
                parseProducer(parts[0]),
                parseNumber(parts[1]),
                parseNumber(parts[2]),
                List.copyOf(above));
    }

    private static String parseProducer(String encoded) {
        String name = URLDecoder.decode(encoded, StandardCharsets.UTF_8);
        if (name.isEmpty() || name.length() > TakenNumbers.MAX_NAME_LENGTH) {
            throw new IllegalArgumentException("no name of a producer");
        }
        return name;
    }

    private static Range parseRange(String text) {
        int dash = text.indexOf('-');
        if (dash > 0) {
            long first = parseNumber(text.substring(0, dash));
            long last = parseNumber(text.substring(dash + 1));
            if (first >= 1 && first <= last) {
                return new Range(first, last);
            }
        }
        throw new IllegalArgumentException("no range");
    }

    private static long parseNumber(String text) {
        long number = Stamp.parseDigits(text, 0, text.length());
        if (number < 0) {
            throw new IllegalArgumentException("no number");
        }
        return number;
    }

    private static IllegalArgumentException refuse(
            String argument, String entry, IllegalArgumentException cause) {
        return new IllegalArgumentException(
                "cannot use --%s: \"%s\" must be <producer>/<epoch>/<upto>, after which"
                                .formatted(argument, entry)
                        + " /<first>-<last>,... may come",
                cause);
    }
}
