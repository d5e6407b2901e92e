package io.speck.link.protocol;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;

/**
 * The numbers up to which a reader reads: argument {@code --until}, written like {@code --taken}.
 *
 * <p>Readers that change at one record of their link stop anywhere at first. Then each reads on to
 * what any of them has taken, and no further.
 */
public final class Until implements Serializable {
    private static final long serialVersionUID = 1L;

    /** Without an end. */
    public static final Until EVER = new Until(HandOver.NONE);

    private final Map<String, HandOver.Entry> entries = new HashMap<>(); // by "producer/epoch/"

    private Until(HandOver numbers) {
        for (HandOver.Entry each : numbers.entries()) {
            entries.put(Stamp.prefix(each.producer(), each.epoch()), each);
        }
    }

    /** @throws IllegalArgumentException naming the argument, and the entry that cannot be read */
    public static Until parse(String text) {
        return text.isEmpty() ? EVER : new Until(HandOver.parse("until", text));
    }

    public boolean isEver() {
        return entries.isEmpty();
    }

    /**
     * Whether the message with that stamp is to be taken.
     *
     * @param otherwise the answer for one without a number
     */
    public boolean includes(String stamp, boolean otherwise) {
        int slash = stamp == null ? -1 : stamp.lastIndexOf('/');
        long number = slash > 0 ? Stamp.parseDigits(stamp, slash + 1, stamp.length()) : -1;
        return number < 1 ? otherwise : includes(stamp.substring(0, slash + 1), number);
    }

    /** Returns up to where a part of a log is read; 0: not at all. */
    public long findPosition(String series, long epoch) {
        HandOver.Entry entry = entries.get(Stamp.prefix(series, epoch));
        return entry == null ? 0 : entry.upTo();
    }

    /** @param prefix the stamp before the number, slash included */
    public boolean includes(String prefix, long number) {
        HandOver.Entry entry = entries.get(prefix);
        return entry != null
                && (number <= entry.upTo()
                        || entry.above().stream()
                                .anyMatch(it -> it.first() <= number && number <= it.last()));
    }
}
