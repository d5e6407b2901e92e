package io.speck.mqtt;

import java.io.Serializable;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * What the reader before this one has taken of a link: argument {@code --taken}.
 *
 * <p>Its text is {@code <producer>/<epoch>/<upto>}, or {@code
 * <producer>/<epoch>/<upto>/<first>-<last>,<first>-<last>} and so on, entries joined by {@code ;}.
 * The producer's name is percent-encoded.
 *
 * @param entries of each producer in the order in which its epochs were met
 */
record HandOver(List<Entry> entries) implements Serializable {
    static final HandOver NONE = new HandOver(List.of());

    /** Of one epoch of a producer, all numbers from 1 to the one given, and the ranges above it. */
    record Entry(String producer, long epoch, long upTo, List<Range> above)
            implements Serializable {}

    record Range(long first, long last) implements Serializable {}

    /**
     * @param text nothing when it is empty
     * @throws IllegalArgumentException naming the argument, and the entry that cannot be read
     */
    static HandOver parse(String text) {
        List<Entry> entries = new ArrayList<>();
        for (String entry : text.split(";")) {
            if (!entry.isEmpty()) {
                entries.add(entry(entry));
            }
        }
        return new HandOver(List.copyOf(entries));
    }

    private static Entry entry(String text) {
        String[] parts = text.split("/", -1);
        if (parts.length < 3 || parts.length > 4) {
            throw bad(text, null);
        }
        List<Range> above = new ArrayList<>();
        if (parts.length == 4) {
            for (String range : parts[3].split(",", -1)) {
                above.add(range(range, text));
            }
        }
        return new Entry(
                producer(parts[0], text),
                number(parts[1], text),
                number(parts[2], text),
                List.copyOf(above));
    }

    private static String producer(String encoded, String entry) {
        try {
            String name = URLDecoder.decode(encoded, StandardCharsets.UTF_8);
            if (!name.isEmpty() && name.length() <= TakenNumbers.LONGEST_NAME) {
                return name;
            }
        } catch (IllegalArgumentException e) {
            throw bad(entry, e);
        }
        throw bad(entry, null);
    }

    private static Range range(String text, String entry) {
        int dash = text.indexOf('-');
        if (dash > 0) {
            long first = number(text.substring(0, dash), entry);
            long last = number(text.substring(dash + 1), entry);
            if (first >= 1 && first <= last) {
                return new Range(first, last);
            }
        }
        throw bad(entry, null);
    }

    private static long number(String text, String entry) {
        long number = Stamp.digits(text, 0, text.length());
        if (number < 0) {
            throw bad(entry, null);
        }
        return number;
    }

    private static IllegalArgumentException bad(String entry, Throwable cause) {
        return new IllegalArgumentException(
                "cannot use --taken: \""
                        + entry
                        + "\" must be <producer>/<epoch>/<upto>, after which"
                        + " /<first>-<last>,... may come",
                cause);
    }
}
